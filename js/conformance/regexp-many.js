let hits = 0; for (let i = 0; i < 3000; i++) { const m = new RegExp('(' + i + ')(x?)').exec('n' + i + 'x'); if (m && m[2] === 'x') hits++; } console.log(String(hits));
