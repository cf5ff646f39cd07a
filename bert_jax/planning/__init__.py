"""What the compilers say of an update before a machine is rented."""
