"""Batches as a pure function of the step: plans, order, packing, gathering."""
