//! Readable names, and names that are damaged or hostile: itanium.I1 and itanium.I2 hold.

use super::*;

fn whole(name: &str) -> Option<String> {
    demangle(name, true, 4096)
}

fn short(name: &str) -> String {
    demangle(name, false, 4096).expect("understood")
}

#[test]
fn names_for_people_lose_what_nobody_wrote() {
    for (name, expected) in [
        (
            "_Z12store_recordiRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            "store_record(int, std::string const&)",
        ),
        (
            "_ZNSt6vectorINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESaIS5_EE9push_backERKS5_",
            "std::vector<std::string>::push_back(std::string const&)",
        ),
        (
            "_ZNSt3mapIiiSt4lessIiESaISt4pairIKiiEEEixERS3_",
            "std::map<int, int>::operator[](int const&)",
        ),
        ("_ZNSsC1EPKc", "std::string::basic_string(char const*)"),
        (
            "_ZNSt3__16vectorIiNS_9allocatorIiEEE4growEv",
            "std::vector<int>::grow()",
        ),
        // A comparison of the program's own was chosen by its programmer.
        (
            "_ZNSt3setIi4MineSaIiEE6insertERKi",
            "std::set<int, Mine>::insert(int const&)",
        ),
        (
            "_ZSt11make_sharedI3FooJEESt10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES4_E4typeEEDpOT0_",
            "std::make_shared<Foo>()",
        ),
    ] {
        assert_eq!(short(name), expected, "{name}");
    }
}

#[test]
fn what_is_not_understood_has_no_name() {
    for name in [
        "_Z",
        "_ZN",
        "_Z1",
        "_Z3fo",
        "_Z1fS_",
        "_Z1fT_",
        "_ZNE",
        "_Z1fIiEvT0_",
        "_Z1fvX",
        "_ZSt",
        "_Z1fDtE",
        "_ZL",
        "_ZZ1fvE",
        "_Z9999999999999999999f",
        "_ZC1Ev",
        "_Z1fM",
        "_ZN1aC",
        "_ZUlvE",
        "_ZGR",
    ] {
        assert_eq!(whole(name), None, "{name}");
    }
}

/// Tests every cut and every changed byte of names with all kinds of parts: an answer, in bounded time (itanium.I2).
#[test]
fn damaged_names_end() {
    let names = [
        "_ZZ3fooIiJcdEEvT_DpT0_ENKUlS0_E_clES0_",
        "_ZN1AcvT_IiEEv",
        "_ZlsRSoRK1A",
        "_ZN4llvm10checkedAddIiEENSt9enable_ifIXsr3std9is_signedIT_EE5valueENS_8OptionalIS2_EEE4typeES2_S2_",
        "_Z1gIJilEEDTcl1fspfp_EEDpT_",
        "_ZThn16_N1B1gEv",
        "_Z1hM1AKFvRA3_iE",
    ];
    for name in names {
        assert!(whole(name).is_some(), "{name}");
        for at in 2..name.len() {
            whole(&name[..at]);
            for byte in b"_0159ABCDEFGIJKLMNOPRSTUVXZabcdefilmnprstvz\xff" {
                let mut bytes = name.as_bytes().to_vec();
                bytes[at] = *byte;
                whole(&String::from_utf8_lossy(&bytes));
            }
        }
    }
}

#[test]
fn hostile_names_are_bounded() {
    let deep = format!("_Z1f{}i", "P".repeat(100_000));
    assert_eq!(whole(&deep), None);
    // Each is a pair of the one before: written out, 2^60 parts.
    let mut twice = String::from("_Z1fN1A1BE");
    for step in 0..60 {
        let seen = match step {
            0 => "S0_".to_owned(),
            _ => format!("S{}_", base36(step)),
        };
        twice += &format!("1QI{seen}{seen}E");
    }
    assert!(whole(&twice).is_none_or(|name| name.len() < 8192));
    // An empty pack, named again and again: nothing is written, and it still ends.
    let mut nothing = String::from("_Z1fIJEEv");
    nothing += &"DpT_".repeat(2_000);
    assert_eq!(whole(&nothing).as_deref(), Some("void f<>()"));
}

fn base36(mut number: usize) -> String {
    let mut text = Vec::new();
    loop {
        text.push(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number % 36]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    text.reverse();
    String::from_utf8(text).expect("digits")
}
