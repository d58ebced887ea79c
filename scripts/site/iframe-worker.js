// A worker for pages of `file:` addresses, whose search needs one: browsers refuse the real one there. The script runs
// in a hidden frame, which has the names that scripts of workers use.
if (location.protocol === "file:") {
  window.Worker = class FrameWorker extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = scope.document.createElement("script");
          Object.assign(script, { src: address, onload: resolve, onerror: reject });
          scope.document.body.append(script);
        });
      scope.postMessage = (data) => this.receive(new MessageEvent("message", { data }));
      scope.importScripts = (...addresses) =>
        addresses.reduce((previous, next) => previous.then(() => load(next)), Promise.resolve());
      this.scope = scope;
      this.ready = load(new URL(address, location.href).href);
      this.ready.catch(() => this.dispatchEvent(new ErrorEvent("error", { message: `cannot load ${address}` })));
    }

    receive(event) {
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }

    postMessage(data) {
      this.ready.then(() => {
        const event = new this.scope.MessageEvent("message", { data: structuredClone(data) });
        this.scope.dispatchEvent(event);
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
