const d = new Date(Date.UTC(2024, 1, 29, 12, 34, 56, 789)); console.log(d.toISOString(), d.getTime(), d.getUTCDay(), JSON.stringify(d));
d.setUTCFullYear(2025); console.log(d.toISOString()); console.log(Date.parse('2000-01-01T00:00:00Z'), new Date(NaN).getTime(), new Date(8.64e15 + 1).getTime());
console.log(new Date(2020, 0, 31) < new Date(2020, 1, 1), new Date(0) - new Date(86400000)); try { new Date(NaN).toISOString(); } catch (e) { console.log(e.constructor.name); }
