// node's part of the tabs: FILE in N vm contexts that take turns, then every second closed, then all but the last.
// Prints what is resident after gc() at each step, and what the tabs say of their data.
const fs = require('node:fs'), vm = require('node:vm');
const [file, count] = [process.argv[2], Number(process.argv[3])];
const source = fs.readFileSync(file, 'utf8'), output = [], rss = {};
// The resident size of the host's report is that of smaps_rollup, too.
const resident = () => Number(/Rss:\s+(\d+)/.exec(fs.readFileSync('/proc/self/smaps_rollup', 'utf8'))[1]) * 1024;
const measure = async at => {
  for (let i = 0; i < 5; i++) { gc(); await new Promise(done => setTimeout(done, 150)); }
  rss[at] = resident();
};
let tabs = [];
for (let number = 1; number <= count; number++) {
  const tab = { queue: [], goodbye: [] };
  tab.context = vm.createContext({
    tab: number,
    setTimeout: (f, ms, ...rest) => tab.queue.push(() => f(...rest)),
    console: { log: line => output.push(line) },
    onclose: f => tab.goodbye.push(f),
  });
  vm.runInContext(source, tab.context, { filename: file });
  tabs.push(tab);
}
for (let any = true; any;) {
  any = false;
  for (const tab of tabs) { const next = tab.queue.shift(); if (next) { any = true; next(); } }
}
const close = which => { tabs = tabs.filter((tab, at) => { if (which(at)) tab.goodbye.forEach(f => f()); return !which(at); }); };
(async () => {
  await measure('open');
  const last = tabs.length - 1;
  close(at => at % 2 === 0 && at !== last);
  await measure('half closed');
  const end = tabs.length - 1;
  close(at => at !== end);
  await measure('all but one closed');
  for (const tab of tabs) tab.goodbye.forEach(f => f());
  console.log(JSON.stringify({ output, rss }));
})();
