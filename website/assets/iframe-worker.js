// Browsers start no workers for pages from the file system; there, run them in hidden frames, so that search works.
if (location.protocol === "file:") {
  const loadScript = (page, url) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`Could not load ${url}`));
      page.head.append(script);
    });

  // Messages arrive later and as copies, as those of a worker do.
  const deliver = (target, data) => {
    const copy = structuredClone(data);
    setTimeout(() => target.dispatchEvent(new MessageEvent("message", { data: copy })));
  };

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.addEventListener("message", (event) => this.onmessage?.(event));
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      scope.postMessage = (data) => deliver(this, data);
      scope.importScripts = (...urls) =>
        urls.reduce((loaded, next) => loaded.then(() => loadScript(scope.document, next)), Promise.resolve());
      this.ready = loadScript(scope.document, url);
    }

    postMessage(data) {
      this.ready.then(() => deliver(this.frame.contentWindow, data));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
