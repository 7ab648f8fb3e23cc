//! The interpreter, compared with `gimli`, which reads the same tables with other code: at every address
//! of every module of this test, the vdso included.

use gimli::{CfaRule, EhFrameHdr, NativeEndian, RegisterRule, UnwindSection};

use skinflint_base::random::Random;

use super::*;
use crate::find::Finder;

#[cfg(target_arch = "x86_64")]
use gimli::X86_64 as registers;
#[cfg(target_arch = "x86_64")]
const RETURN: gimli::Register = registers::RA;
#[cfg(target_arch = "aarch64")]
const RETURN: gimli::Register = gimli::AArch64::X30;
const STACK: gimli::Register = gimli::Register(crate::arch::SP as u16);
const FRAME: gimli::Register = gimli::Register(FP as u16);

/// Returns gimli's row in our form; `None` if it needs an expression.
fn judge(row: &gimli::UnwindTableRow<usize>, signal: bool) -> Option<Row> {
    let reg = |r: gimli::Register| match r {
        STACK => Some(Base::Sp),
        FRAME => Some(Base::Bp),
        _ => None,
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => match reg(*register) {
            Some(base) => Cfa::Reg(base, *offset),
            None => Cfa::Bad,
        },
        CfaRule::Expression(_) => return None,
    };
    let saved = |r: gimli::Register, unset: Saved| {
        Some(match row.register(r) {
            None => unset,
            Some(RegisterRule::Undefined) => Saved::Undefined,
            Some(RegisterRule::SameValue) => Saved::Same,
            Some(RegisterRule::Offset(n)) => Saved::At(Base::Cfa, n),
            Some(RegisterRule::ValOffset(n)) => Saved::IsCfa(n),
            Some(RegisterRule::Register(_)) => Saved::Bad,
            _ => return None,
        })
    };
    let (bp, ra) = (saved(FRAME, Saved::Same)?, saved(RETURN, UNSET_RA)?);
    Some(Row {
        cfa,
        bp,
        ra,
        signal,
    })
}

/// Compares the rows of all entries of the module at `pc`. Returns (rows compared, rows left out).
fn compare_module(pc: u64) -> (usize, usize) {
    let module = Finder::resolve().module(pc).unwrap();
    let (hdr, end) = (module.hdr, module.tables.1);
    // SAFETY: the tables of a loaded module, which stays loaded.
    let bytes =
        |at: u64| unsafe { std::slice::from_raw_parts(at as *const u8, (end - at) as usize) };
    let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(hdr);
    let parsed = EhFrameHdr::new(bytes(hdr), NativeEndian)
        .parse(&bases, 8)
        .unwrap();
    let frames_at = parsed.eh_frame_ptr().direct().unwrap();
    let bases = bases.set_eh_frame(frames_at);
    let mut frames = gimli::EhFrame::new(bytes(frames_at), NativeEndian);
    if cfg!(target_arch = "aarch64") {
        frames.set_vendor(gimli::Vendor::AArch64);
    }
    let table = parsed.table().unwrap();
    let mut context = gimli::UnwindContext::new();
    let (mut compared, mut left_out) = (0, 0);
    let mut entries = table.iter(&bases);
    while let Some((start, at)) = entries.next().unwrap() {
        let start = start.direct().unwrap();
        let offset = table.pointer_to_offset(at).unwrap();
        let fde = frames
            .fde_from_offset(&bases, offset, gimli::EhFrame::cie_from_offset)
            .unwrap();
        assert_eq!(fde.initial_address(), start);
        let signal = fde.is_signal_trampoline();
        let mut rows = fde.rows(&frames, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            let want = judge(row, signal);
            for pc in [row.start_address(), row.end_address() - 1] {
                // SAFETY: as above.
                let got = unsafe { row_at(&module, pc, FP) };
                match want {
                    Some(want) => assert_eq!(got, Some(want), "pc {pc:x} of {module:x?}"),
                    None => left_out += 1,
                }
            }
            compared += usize::from(want.is_some());
        }
    }
    (compared, left_out)
}

#[test]
fn every_row_of_the_c_library_and_of_ourselves() {
    for pc in [
        libc::qsort as *const () as u64,
        compare_module as *const () as u64,
    ] {
        let (compared, left_out) = compare_module(pc);
        println!("{compared} rows, {left_out} positions with expressions");
        assert!(compared > 5_000, "{compared}");
        assert!(left_out < compared / 10, "{left_out} of {compared}");
    }
}

// The loader gives no table for that of aarch64; where handlers return to is known by its bytes (step.rs).
#[cfg(target_arch = "x86_64")]
#[test]
fn every_row_of_the_vdso() {
    // SAFETY: reads the auxiliary vector.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    assert_ne!(base, 0, "no vdso");
    assert!(compare_module(base + 16).0 > 2);
}

#[test]
fn the_scan_finds_what_the_table_finds() {
    let pc = libc::qsort as *const () as u64;
    let module = Finder::resolve().module(pc).unwrap();
    // SAFETY: a loaded module.
    let hdr = unsafe { Reader::new(module.hdr, module.tables.1) };
    let mut r = hdr;
    r.skip(4).unwrap();
    let frames = module.hdr + 4 + u64::from(r.u32().unwrap());
    let scanned = scan(hdr.moved(module.tables.0, frames).unwrap(), &module, pc).unwrap();
    let searched = find_fde(hdr, &module, pc).unwrap();
    assert_eq!((scanned.start, scanned.len), (searched.start, searched.len));
    assert!(scan(hdr.moved(module.tables.0, frames).unwrap(), &module, 1).is_none());
}

#[test]
fn damaged_tables_yield_an_answer_or_none() {
    let pc = libc::qsort as *const () as u64;
    let real = Finder::resolve().module(pc).unwrap();
    let len = (real.end - real.hdr) as usize;
    // Not to the end of the mapping, which may have a hole after the segment.
    let most = if cfg!(target_arch = "aarch64") {
        64 << 10
    } else {
        300 << 10
    };
    let len = len.min(most);
    // SAFETY: header and frames of a loaded module, which are longer than that.
    let bytes = unsafe { std::slice::from_raw_parts(real.hdr as *const u8, len) };
    let mut random = Random::new(0x2545_f491_4f6c_dd1du64);
    let mut copy = bytes.to_vec();
    let base = copy.as_ptr() as u64;
    let module = Module {
        start: base,
        end: base + copy.len() as u64,
        hdr: base,
        tables: (base, base + copy.len() as u64),
    };
    let at = base.wrapping_add(pc.wrapping_sub(real.hdr));
    // SAFETY: the module is the vector.
    let row = |pc| unsafe { row_at(&module, pc, FP) };
    assert!(row(at).is_some(), "the copy works before it is damaged");
    // Half of the damage goes to the entry of `at` itself, where it is sure to be read.
    // SAFETY: the module is the vector.
    let entry = unsafe { Reader::new(base, module.end) };
    let mut table = entry;
    table.skip(8).unwrap();
    let count = u64::from(table.u32().unwrap());
    let entry_at = (search(table, count, base, at).unwrap() - base) as usize;
    let mut answers = 0;
    for round in 0..20_000 {
        let state = random.bits();
        let far = (state >> 8) as usize % copy.len();
        let near = entry_at + (state >> 8) as usize % 64;
        let index = [far, near][round % 2];
        let before = std::mem::replace(&mut copy[index], state as u8);
        answers += usize::from(row(at.wrapping_add(state >> 52)).is_some());
        copy[index] = before;
    }
    println!("{answers} rows from damaged tables");
    for cut in [0, 1, 4, 11, 12, 100, 5000] {
        let short = Module {
            tables: (base, base + cut),
            ..module
        };
        // SAFETY: a part of the vector.
        let _ = unsafe { row_at(&short, at, FP) };
    }
}
