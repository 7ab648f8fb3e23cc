//! Tests of the decoder: instructions by hand, and all code of real libraries against objdump.

use std::process::Command;

use super::*;

fn length(code: &[u8]) -> Option<usize> {
    let mut padded = code.to_vec();
    padded.resize(32, 0x90);
    decode(&padded).map(|one| one.length)
}

#[test]
fn instructions_have_their_lengths() {
    let known: [(&[u8], &str); 34] = [
        (&[0x55], "push rbp"),
        (&[0x41, 0x57], "push r15"),
        (&[0x48, 0x89, 0xe5], "mov rbp, rsp"),
        (&[0x48, 0x83, 0xec, 0x18], "sub rsp, 24"),
        (&[0x48, 0x81, 0xec, 0x98, 0, 0, 0], "sub rsp, 152"),
        (&[0xf3, 0x0f, 0x1e, 0xfa], "endbr64"),
        (&[0x31, 0xc0], "xor eax, eax"),
        (&[0x48, 0x85, 0xff], "test rdi, rdi"),
        (&[0x74, 0x10], "je"),
        (&[0x0f, 0x84, 1, 2, 3, 4], "je, far"),
        (&[0xe9, 1, 2, 3, 4], "jmp"),
        (&[0x66, 0x48, 0xe8, 1, 2, 3, 4], "call with prefixes"),
        (&[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], "mov rax, fs:0"),
        (&[0x48, 0x8b, 0x05, 1, 2, 3, 4], "mov rax, [rip + …]"),
        (&[0x48, 0xc7, 0xc0, 0xf8, 0xff, 0xff, 0xff], "mov rax, -8"),
        (&[0x80, 0x3d, 1, 2, 3, 4, 5], "cmp byte [rip + …], 5"),
        (&[0x48, 0x8d, 0x44, 0x24, 0x08], "lea rax, [rsp + 8]"),
        (
            &[0x8b, 0x84, 0xc5, 1, 2, 3, 4],
            "mov eax, [rbp + rax*8 + …]",
        ),
        (&[0x8b, 0x04, 0xc5, 1, 2, 3, 4], "mov eax, [rax*8 + …]"),
        (&[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8], "movabs rax"),
        (&[0x66, 0xb8, 1, 2], "mov ax, 513"),
        (&[0x66, 0x81, 0x3f, 1, 2], "cmp word [rdi], 513"),
        (&[0xf6, 0x07, 1], "test byte [rdi], 1"),
        (&[0xf7, 0xd8], "neg eax"),
        (&[0xf7, 0xc7, 1, 2, 3, 4], "test edi, …"),
        (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], "nop of eight bytes"),
        (&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], "nop of ten"),
        (&[0x0f, 0xba, 0xe0, 5], "bt eax, 5"),
        (&[0xc5, 0xf8, 0x77], "vzeroupper"),
        (&[0xc5, 0xfe, 0x6f, 0x06], "vmovdqu ymm0, [rsi]"),
        (&[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1], "vextracti128"),
        (&[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x06], "vmovups zmm0, [rsi]"),
        (&[0x66, 0x0f, 0x3a, 0x0f, 0xc1, 8], "palignr"),
        (&[0xc8, 1, 2, 3], "enter"),
    ];
    for (code, name) in known {
        assert_eq!(length(code), Some(code.len()), "{name}");
    }
    for none in [[0x06, 0, 0], [0x0f, 0x04, 0], [0xea, 0, 0], [0x82, 0, 0]] {
        assert_eq!(length(&none), None, "{none:x?}");
    }
    // Cut off.
    assert_eq!(decode(&[0x48, 0x8b]), None);
    assert_eq!(decode(&[0xe9, 1, 2, 3]), None);
    assert_eq!(decode(&[]), None);
    assert_eq!(decode(&[0x66; 64]), None);
}

/// The addresses and bytes of objdump's lines for one section: `  12ab:\t55 48 89 e5 \tmov …`.
fn listed(text: &str) -> Vec<(u64, Vec<u8>)> {
    let mut lines: Vec<(u64, Vec<u8>)> = Vec::new();
    for line in text.lines() {
        let mut parts = line.split('\t');
        let (Some(at), Some(bytes)) = (parts.next(), parts.next()) else {
            continue;
        };
        let Some(at) = at.trim().strip_suffix(':') else {
            continue;
        };
        let Ok(at) = u64::from_str_radix(at, 16) else {
            continue;
        };
        let bytes = bytes.split_whitespace();
        let bytes = bytes.map(|byte| u8::from_str_radix(byte, 16).expect("a byte"));
        lines.push((at, bytes.collect()));
    }
    lines
}

/// The C library has every kind of instruction that compilers and people write: each one's length is objdump's.
#[test]
fn all_code_of_the_c_library_has_the_lengths_that_objdump_says() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let library = "/lib/x86_64-linux-gnu/libc.so.6";
    let mut objdump = Command::new("objdump");
    objdump.args(["-d", "-w", "-j", ".text", library]);
    let output = objdump.output().expect("objdump, of the package binutils");
    assert!(output.status.success());
    let lines = listed(&String::from_utf8_lossy(&output.stdout));
    assert!(lines.len() > 100_000, "{}", lines.len());
    let mut wrong = Vec::new();
    for (at, code) in &lines {
        let found = length(code);
        if found != Some(code.len()) {
            wrong.push(format!("{at:x}: {code:02x?} is {found:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}: {:#?}",
        wrong.len(),
        lines.len(),
        &wrong[..wrong.len().min(20)]
    );
}

fn begins(code: &[u8], address: u64) -> Result<Beginning, &'static str> {
    let mut padded = code.to_vec();
    padded.resize(64, 0x90);
    beginning(&padded, address)
}

#[test]
fn whole_instructions_are_taken_and_distances_remembered() {
    // endbr64; push rbp; mov rax, [rip + 0x100]; …
    let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x8b, 0x05, 0, 1, 0, 0];
    let taken = begins(&code, 0x1000).expect("movable");
    assert_eq!((taken.kept, taken.length), (4, 8));
    assert_eq!(taken.moved, code[4..]);
    let fix = Fix {
        at: 4,
        end: 8,
        target: 0x100c + 0x100,
    };
    assert_eq!(taken.fixes, [fix]);
    // cmp dword [rip - 0x100], 7: the distance is from the end, behind the 7.
    let code = [0x83, 0x3d, 0, 0xff, 0xff, 0xff, 7];
    let taken = begins(&code, 0x1000).expect("movable");
    assert_eq!(taken.fixes[0].target, 0x1007 - 0x100);
    assert_eq!((taken.fixes[0].at, taken.fixes[0].end), (2, 7));
}

#[test]
fn short_jumps_become_long_ones() {
    // test rdi, rdi; je +0x10
    let taken = begins(&[0x48, 0x85, 0xff, 0x74, 0x10], 0x1000).expect("movable");
    assert_eq!(taken.length, 5);
    assert_eq!(taken.moved, [0x48, 0x85, 0xff, 0x0f, 0x84, 0, 0, 0, 0]);
    let fix = Fix {
        at: 5,
        end: 9,
        target: 0x1015,
    };
    assert_eq!(taken.fixes, [fix]);
    // jmp, far: a function that is only another's name.
    let taken = begins(&[0xe9, 0xfb, 0xff, 0xff, 0xff], 0x1000).expect("movable");
    assert_eq!(taken.fixes[0].target, 0x1000);
}

#[test]
fn calls_return_to_where_they_did() {
    // push rbx; mov rbx, rdi; call +0x20
    let taken = begins(&[0x53, 0x48, 0x89, 0xfb, 0xe8, 0x20, 0, 0, 0], 0x1000).expect("movable");
    assert_eq!(taken.length, 9);
    let push_and_jump = [0x53, 0x48, 0x89, 0xfb, 0xff, 0x35, 5, 0, 0, 0, 0xe9];
    assert_eq!(taken.moved[..11], push_and_jump);
    assert_eq!(taken.moved.len(), 11 + 4 + 8);
    let fix = |at, end, target| Fix { at, end, target };
    assert_eq!(
        taken.fixes,
        [fix(11, 15, 0x1029), fix(15 | ABSOLUTE, 23, 0x1009)]
    );
    // call [rip + 0x20]
    let taken = begins(&[0xff, 0x15, 0x20, 0, 0, 0], 0x1000).expect("movable");
    assert_eq!(taken.moved[..8], [0xff, 0x35, 6, 0, 0, 0, 0xff, 0x25]);
    assert_eq!(
        taken.fixes,
        [fix(8, 12, 0x1026), fix(12 | ABSOLUTE, 20, 0x1006)]
    );
}

#[test]
fn what_cannot_be_moved_is_refused() {
    let refused: [&[u8]; 7] = [
        &[0xff, 0xd0, 0x90, 0x90, 0x90], // call rax
        &[0xff, 0x25, 0, 0, 0, 0],       // jmp [rip]
        &[0xe3, 0x05, 0x90, 0x90, 0x90], // jrcxz
        &[0x31, 0xc0, 0xc3],             // xor eax, eax; ret
        &[0xeb, 0x05, 0x90, 0x90, 0x90], // jmp, short: two bytes, and nothing follows
        &[0x0f, 0x05, 0x90, 0x90, 0x90], // syscall
        &[0x06, 0x90, 0x90, 0x90, 0x90], // none
    ];
    for code in refused {
        assert!(begins(code, 0x1000).is_err(), "{code:02x?}");
    }
    assert!(beginning(&[0x55, 0x53], 0x1000).is_err(), "cut off");
}

#[test]
fn jumps_into_the_beginning_are_found() {
    // 1000: push rbx; 1001: nop …; 1006: jmp 1001 (short); 1008: je 1004 (far); ret
    let code = [0x53, 0x90, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xf9, 0xc3];
    assert_eq!(jumps_into(&code, 0x1000, 0x1000, 0x1005), Some(true));
    assert_eq!(jumps_into(&code, 0x1000, 0x1001, 0x1005), Some(false));
    let far = [0x53, 0x90, 0x0f, 0x84, 0xfc, 0xff, 0xff, 0xff, 0xc3];
    assert_eq!(jumps_into(&far, 0x1000, 0x1000, 0x1005), Some(true));
    assert_eq!(jumps_into(&[0x53, 0x06], 0x1000, 0x1000, 0x1005), None);
}

#[test]
fn any_bytes_are_read_in_bounded_time() {
    let mut random = skinflint_base::random::Random::new(22);
    for _ in 0..20_000 {
        let code: Vec<u8> = (0..40).map(|_| random.bits() as u8).collect();
        let _ = beginning(&code, random.bits());
        let _ = jumps_into(&code, random.bits(), 0, u64::MAX);
    }
}
