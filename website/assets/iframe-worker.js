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

  window.Worker = class extends EventTarget {
    onmessage = null;

    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      scope.postMessage = (data) => this.#receive(data);
      scope.importScripts = (...urls) =>
        urls.reduce((loaded, next) => loaded.then(() => loadScript(scope.document, next)), Promise.resolve());
      this.ready = loadScript(scope.document, url);
    }

    #receive(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
