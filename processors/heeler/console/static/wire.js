// From the server to the store: a snapshot, then changes by server-sent events; what is missed is read anew.

const QUIET_MS = 5000; // the server says something every second
const HIDDEN_MS = 60000; // a page that nobody sees lets go of its connection

export class Packed {
  constructor(text) {
    const raw = atob(text);
    this.bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) this.bytes[i] = raw.charCodeAt(i);
    this.view = new DataView(this.bytes.buffer);
  }

  word(at) { return this.view.getUint32(4 * at, true); }
}

export class Wire {
  constructor(store) {
    this.store = store;
    this.heard = performance.now();
    this.lostAt = null; // our clock, in ms, when the server was lost
    this.why = "";
    this.waiting = [];
    this.loading = false;
    this.source = null;
    this.hiddenSince = null;
  }

  start() {
    this._load();
    this._listen();
    setInterval(() => this._look(), 500);
    document.addEventListener("visibilitychange", () => this._look());
  }

  _listen() {
    this.source = new EventSource("/api/stream");
    this.source.onmessage = (event) => this._frame(JSON.parse(event.data));
    this.source.onerror = () => this._lost("the connection to the console broke");
  }

  _lost(why) {
    if (this.lostAt === null) this.lostAt = this.heard;
    this.why = why;
    this.store.tell("change");
  }

  _look() {
    const now = performance.now();
    this.hiddenSince = document.hidden ? (this.hiddenSince ?? now) : null;
    if (this.hiddenSince !== null && now - this.hiddenSince > HIDDEN_MS) {
      this.source?.close();
      this.source = null;
      return;
    }
    if (this.source === null) { this._listen(); return; }
    if (now - this.heard > QUIET_MS) this._lost("the console says nothing");
    // A refusal closes the source for good: try again, without haste.
    if (this.source.readyState === EventSource.CLOSED && now - (this.triedAt ?? 0) > 2000) {
      this.triedAt = now;
      this._listen();
    }
  }

  _frame(frame) {
    this.heard = performance.now();
    this.lostAt = null;
    for (const name of ["cells", "jobs_of"]) if (frame[name]) frame[name] = new Packed(frame[name]);
    if (this.loading) { this.waiting.push(frame); return; }
    const { store } = this;
    if (!store.loaded || frame.epoch !== store.epoch || frame.seq > store.seq + 1 || frame.seq < store.seq) {
      this.waiting = [frame];
      this._load();
    } else if (frame.seq > store.seq) {
      store.apply(frame);
    }
  }

  async _load() {
    if (this.loading) return;
    this.loading = true;
    try {
      const answer = await fetch("/api/snapshot");
      if (!answer.ok) throw new Error(`the console answers ${answer.status}`);
      const buffer = await answer.arrayBuffer();
      const { store } = this;
      unpack(store, buffer);
      this.loading = false;
      const frames = this.waiting.filter((frame) => frame.epoch === store.epoch && frame.seq > store.seq);
      this.waiting = [];
      for (const frame of frames) this._frame_again(frame);
      store.tell("loaded");
      store.tell("findings");
      store.tell("change");
    } catch (error) {
      this.loading = false;
      this._lost(error.message);
      setTimeout(() => this._load(), 1000);
    }
  }

  _frame_again(frame) {
    if (frame.seq === this.store.seq + 1) this.store.apply(frame);
  }
}

export function unpack(store, buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  let at = 4 + size;
  const jobs = new Uint32Array(buffer.slice(at, at + 4 * head.cells));
  at += 4 * head.cells;
  const layers = {};
  for (const name of head.layers) {
    layers[name] = new Uint8Array(buffer.slice(at, at + head.cells));
    at += head.cells;
  }
  store.load(head, jobs, layers);
}
