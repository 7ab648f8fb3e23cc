class AppError extends Error { constructor(m, code) { super(m, { cause: 'why' }); this.name = 'AppError'; this.code = code; } }
try { try { throw new AppError('broken', 42); } catch (e) { e.seen = true; throw e; } finally { console.log('finally'); } } catch (e) { console.log(String(e), e.code, e.seen, e.cause, e instanceof AppError, typeof e.stack); }
const agg = new AggregateError([new Error('a'), 1], 'many'); console.log(agg.message, agg.errors.length);
