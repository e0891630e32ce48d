// What this page knows of the fleet: typed arrays of cells, and maps. `wire.js` writes it, views read it.

export const NO_CELL = 255, UNREAD = 255;
export const JOB_UNKNOWN = 0, JOB_NONE = 1, JOB_SEVERAL = 2;

export class Store extends EventTarget {
  constructor() {
    super();
    this.loaded = false;
    this.seq = -1;
    this.epoch = -1;
    this.cells = 0;
    this.layers = {};
    this.jobOf = new Uint32Array(0);
    this.nodeOf = new Uint32Array(0);
    this.nodes = { name: [], room: [], state: [], partitions: [], start: [] };
    this.jobs = new Map();
    this.findings = new Map();
    this.closed = [];
    this.actions = [];
    this.counts = null;
    this.status = null;
    this.dirty = new Uint8Array(0); // cells to be drawn anew
    this.shape = 0; // grows when cells, groups or nodes' places may have changed
    this._now = 0;
    this._at = 0;
  }

  // The server's time, carried on by our own clock.
  now() { return this._now + (performance.now() - this._at) * 1e6; }

  tell(kind) { this.dispatchEvent(new Event(kind)); }

  load(head, jobs, layers) {
    Object.assign(this, { loaded: true, seq: head.seq, epoch: head.epoch, cells: head.cells });
    this._now = head.now;
    this._at = performance.now();
    this.layerNames = head.layers;
    this.states = head.states;
    this.nodeStates = head.node_states;
    this.jobOf = jobs;
    this.layers = layers;
    this.nodes = { name: [], room: [], state: [], partitions: [], start: [] };
    this.nodeOf = new Uint32Array(0);
    this.dirty = new Uint8Array(0);
    this.addNodes(head.nodes);
    this.jobs = new Map(head.jobs.map((row) => [row[0], job(row)]));
    this.findings = new Map(head.findings.map((one) => [one.id, one]));
    Object.assign(this, { closed: head.closed, actions: head.actions, counts: head.counts, status: head.status });
    this.dirty.fill(1);
    this.shape += 1;
  }

  // Nodes come at the end; their cells are empty until they are told.
  addNodes(columns) {
    const { name, room, start } = this.nodes;
    let next = name.length ? start.at(-1) + room.at(-1) : 0;
    columns.name.forEach((one, at) => {
      name.push(one);
      room.push(columns.room[at]);
      start.push(next);
      this.nodes.state.push(columns.state[at]);
      this.nodes.partitions.push(columns.partitions[at]);
      next += columns.room[at];
    });
    this._resize(next);
    this.shape += 1;
  }

  _resize(cells) {
    const first = this.nodeOf.length;
    this.jobOf = grown(this.jobOf, cells, JOB_UNKNOWN);
    this.nodeOf = grown(this.nodeOf, cells, 0);
    this.dirty = grown(this.dirty, cells, 1);
    for (const layer of this.layerNames) this.layers[layer] = grown(this.layers[layer], cells, layer === "severity" ? 0 : UNREAD);
    for (let node = this.nodes.name.length - 1; node >= 0 && this.nodes.start[node] >= first; node -= 1) {
      this.nodeOf.fill(node, this.nodes.start[node], this.nodes.start[node] + this.nodes.room[node]);
    }
    this.cells = cells;
  }

  apply(frame) {
    this.seq = frame.seq;
    this._now = frame.now;
    this._at = performance.now();
    this.status = frame.status;
    this.counts = frame.counts;
    if (frame.added) this.addNodes(frame.added);
    if (frame.nodes) this._setNodes(frame.nodes);
    if (frame.cells) this._setCells(frame.cells);
    if (frame.jobs_of) this._setJobs(frame.jobs_of);
    for (const row of frame.jobs ?? []) this.jobs.set(row[0], job(row));
    if (frame.jobs_gone?.length) {
      const gone = new Set(frame.jobs_gone);
      for (const [number, one] of this.jobs) if (gone.has(one.id)) this.jobs.delete(number);
    }
    for (const one of frame.findings ?? []) this.findings.set(one.id, one);
    for (const id of frame.findings_gone ?? []) this.findings.delete(id);
    if (frame.closed) this.closed = frame.closed;
    if (frame.actions) this.actions = frame.actions;
    if (frame.findings || frame.findings_gone || frame.actions) this.tell("findings");
    this.tell("change");
  }

  _setNodes(columns) {
    columns.number.forEach((node, at) => {
      this.nodes.state[node] = columns.state[at];
      if (String(this.nodes.partitions[node]) !== String(columns.partitions[at])) {
        this.nodes.partitions[node] = columns.partitions[at];
        this.shape += 1;
      }
      this.dirty.fill(1, this.nodes.start[node], this.nodes.start[node] + this.nodes.room[node]);
    });
  }

  _setCells(data) {
    const numbers = words(data, 1, data.word(0));
    let at = 4 * (1 + numbers.length);
    const { start, room } = this.nodes;
    for (const name of this.layerNames) {
      const layer = this.layers[name];
      for (const node of numbers) {
        if (name === "state") this._watchShape(layer, data.bytes, at, start[node], room[node]);
        layer.set(data.bytes.subarray(at, at + room[node]), start[node]);
        at += room[node];
      }
    }
    for (const node of numbers) this.dirty.fill(1, start[node], start[node] + room[node]);
  }

  // A GPU that was not there before has no place in the picture yet.
  _watchShape(layer, fresh, at, start, room) {
    for (let i = 0; i < room; i += 1) {
      if ((layer[start + i] === NO_CELL) !== (fresh[at + i] === NO_CELL)) { this.shape += 1; return; }
    }
  }

  _setJobs(data) {
    const count = data.word(0);
    for (let i = 0; i < count; i += 1) {
      const cell = data.word(1 + i);
      this.jobOf[cell] = data.word(1 + count + i);
      this.dirty[cell] = 1;
    }
    this.shape += 1;
  }

  cellsOf(node) {
    const found = [];
    const first = this.nodes.start[node];
    for (let cell = first; cell < first + this.nodes.room[node]; cell += 1) {
      if (this.layers.state[cell] !== NO_CELL) found.push(cell);
    }
    return found;
  }
}

function grown(array, size, empty) {
  if (array.length === size) return array;
  const made = new array.constructor(size).fill(empty);
  made.set(array.subarray(0, size));
  return made;
}

function job([number, id, name, user, account, partition, state, start, nodes]) {
  return { number, id, name, user, account, partition, state, start, nodes };
}

const words = (data, from, count) => Array.from({ length: count }, (_, i) => data.word(from + i));
