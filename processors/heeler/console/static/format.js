// How numbers and times are said. What is not known is said so, never 0.

export const NOT_READ = "not read";

const UNITS = {
  sm_clock_mhz: ["SM clock", (v) => `${whole(v)}\u00a0MHz`],
  sm_active_ratio: ["SM activity", percent],
  tensor_active_ratio: ["tensor activity", percent],
  util_ratio: ["utilisation", percent],
  power_w: ["power", (v) => `${whole(v)}\u00a0W`],
  power_limit_w: ["power limit", (v) => `${whole(v)}\u00a0W`],
  temp_c: ["temperature", (v) => `${whole(v)}\u00a0°C`],
  fb_used_bytes: ["memory", bytes],
  fb_total_bytes: ["memory size", bytes],
  sm_clock_max_mhz: ["highest SM clock", (v) => `${whole(v)}\u00a0MHz`],
};

export const metricName = (metric) => UNITS[metric]?.[0] ?? metric;
export const reading = (metric, value) =>
  value === null || value === undefined ? NOT_READ : (UNITS[metric]?.[1] ?? whole)(value);

export function whole(value) {
  if (value === null || value === undefined) return "unknown";
  return Math.abs(value) >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en-US") : value.toPrecision(3);
}

export function percent(value) {
  return value === null || value === undefined ? "unknown" : `${(value * 100).toFixed(value !== 0 && Math.abs(value) < 0.1 ? 1 : 0)}\u00a0%`;
}

export function bytes(value) {
  return value === null || value === undefined ? "unknown" : `${(value / 2 ** 30).toFixed(1)}\u00a0GiB`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "unknown";
  const s = Math.max(0, seconds);
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (s >= 2 * size) return `${Math.round(s / size)} ${unit}`;
  }
  return `${Math.round(s)} s`;
}

export const plural = (count, one, many) => `${count.toLocaleString("en-US")} ${count === 1 ? one : (many ?? `${one}s`)}`;

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const MOMENT = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const clock = (ns) => CLOCK.format(new Date(ns / 1e6));
export const moment = (ns) => MOMENT.format(new Date(ns / 1e6));
export const day = (ns) => DAY.format(new Date(ns / 1e6));
