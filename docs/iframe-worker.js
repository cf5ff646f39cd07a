// Browsers start no worker from a file. On pages that are files, run the search in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve) => (inside.started = resolve));
      inside.document.write(`<script src="${url}" onload="started()"></script>`);
      inside.document.close();
    }
    postMessage(data) {
      const deliver = () => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      this.ready.then(deliver);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
