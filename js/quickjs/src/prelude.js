// What programs find besides the language: timers, output, and the end of the tab. Written in the language, so that all of
// it lies in the tab's own heap. Gets the host's functions; returns what the host calls.
(function (print, load, now, gc, number) {
  'use strict';
  const timers = new Map();
  let last = 0;
  const set = (every, f, ms, args) => {
    const after = Math.max(every ? 1 : 0, Math.trunc(Number(ms)) || 0);
    timers.set(++last, { at: now() + after, every: every ? after : 0, f, args });
    return last;
  };
  const clear = id => void timers.delete(Number(id));
  const closing = [];
  // As node shows a number: its minus is not lost.
  const shown = value => Object.is(value, -0) ? '-0' : String(value);
  const line = level => (...args) => print(level, args.map(shown).join(' '));
  const names = {
    print: line(0),
    console: { log: line(0), info: line(0), debug: line(0), warn: line(1), error: line(1) },
    setTimeout: (f, ms, ...args) => set(false, f, ms, args),
    setInterval: (f, ms, ...args) => set(true, f, ms, args),
    clearTimeout: clear,
    clearInterval: clear,
    onclose: f => void closing.push(f),
    load,
    gc,
    tab: number,
  };
  for (const [name, value] of Object.entries(names))
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  const next = () => {
    let found = 0, at = Infinity;
    for (const [id, timer] of timers) if (timer.at < at) { found = id; at = timer.at; }
    return [found, at];
  };
  return {
    // Runs the timer that is due first; false: none is due.
    turn() {
      const [id, at] = next();
      if (!id || at > now()) return false;
      const timer = timers.get(id);
      if (timer.every) timer.at = now() + timer.every; else timers.delete(id);
      if (typeof timer.f === 'function') timer.f(...timer.args); else (0, eval)(String(timer.f));
      return true;
    },
    // When the next timer is due; -1: there is none.
    next() { const [id, at] = next(); return id ? at : -1; },
    close() { timers.clear(); for (const f of closing.splice(0)) f(); },
  };
})
