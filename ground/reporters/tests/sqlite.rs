//! SQLite's memory by two accounts, with the library itself.
//!
//! ```text
//!   dlopen libsqlite3.so.0 ─► config ─► open, fill ─► report: usable beside its own ─► close ─► 0
//! ```
//!
//! T1  A process has one library with one configuration: so this is one test.
//!
//! Not here: SQLite in a host (the example).

use std::ffi::{CStr, c_char, c_int, c_void};

use skinflint_reporters::Registry;
use skinflint_reporters::sqlite::{Config, Sqlite, Status};

type Open = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type Exec = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    *const c_void,
    *const c_void,
    *const c_void,
) -> c_int;
type Close = unsafe extern "C" fn(*mut c_void) -> c_int;

fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: an open library and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    found
}

#[test]
fn what_sqlite_says_and_what_it_has() {
    // SAFETY: a library without surprises at its start.
    let library = unsafe { libc::dlopen(c"libsqlite3.so.0".as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "apt-get install sqlite3");
    // SAFETY: the functions have these types by sqlite3.h.
    let (status, config, open, exec, close) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Status>(symbol(library, c"sqlite3_status64")),
            std::mem::transmute::<*mut c_void, Config>(symbol(library, c"sqlite3_config")),
            std::mem::transmute::<*mut c_void, Open>(symbol(library, c"sqlite3_open")),
            std::mem::transmute::<*mut c_void, Exec>(symbol(library, c"sqlite3_exec")),
            std::mem::transmute::<*mut c_void, Close>(symbol(library, c"sqlite3_close")),
        )
    };
    // SAFETY: those of the library that is used below, which is not in use yet.
    let sqlite = unsafe { Sqlite::named(status, config) }.expect("configured");
    let registry = Registry::new();
    registry.add("sqlite", sqlite).keep();
    let none = std::ptr::null();
    let mut db = std::ptr::null_mut();
    // SAFETY: C strings and a place of ours.
    unsafe {
        assert_eq!(open(c":memory:".as_ptr(), &mut db), 0);
        let sql = c"create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) insert into t select i, hex(i) from n;";
        assert_eq!(exec(db, sql.as_ptr(), none, none, none), 0);
        // In use: too late to configure it.
        assert_eq!(Sqlite::counted(status, config).err(), Some(21));
    }
    let measured = registry.measure();
    assert!(measured.faults().is_empty(), "{:?}", measured.faults());
    let (usable, own) = (
        measured.sum("explicit/sqlite/used"),
        measured.sum("sqlite-own-account"),
    );
    let blocks = measured.sum("sqlite-blocks");
    println!("SQLite: {own} bytes by its own account, {usable} given, in {blocks} blocks");
    assert!(own > 300_000 && blocks > 50, "{own} {blocks}");
    // At least the requested bytes and our 16 in front; at most an eighth more in all.
    assert!(
        usable >= own + blocks * 16 && usable < own + own / 8,
        "{usable} {own}"
    );
    // SAFETY: opened above.
    unsafe { assert_eq!(close(db), 0) };
    let measured = registry.measure();
    let (usable, own) = (
        measured.sum("explicit/sqlite/used"),
        measured.sum("sqlite-own-account"),
    );
    assert!(usable < 50_000 && own < 50_000, "{usable} {own}");
}
