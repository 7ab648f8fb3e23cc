//! Signatures by hand, of a generated family, of Rust, and any text: qualified.Q1 and qualified.Q2 hold.

use skinflint_base::random::Random;

use super::*;

/// Signatures and their names.
const BY_HAND: &[(&str, &str)] = &[
    ("main", "main"),
    ("store_record(int, std::string const&)", "store_record"),
    (
        "store_record(int, std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)",
        "store_record",
    ),
    ("void* std::__copy<int>(int*)", "std::__copy"),
    ("auto lib::make<int>(int)", "lib::make"),
    ("decltype(auto) lib::make<int>(int)", "lib::make"),
    (
        "decltype (std::begin((std::declval<A&>)())) lib::first<A>(A&)",
        "lib::first",
    ),
    (
        "foo(int)::{lambda(char)#1}::operator()(char) const",
        "foo::{lambda#1}::operator()",
    ),
    (
        "std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>(int*)",
        "std::vector::_M_realloc_insert",
    ),
    (
        "(anonymous namespace)::Cache::load(char*)",
        "(anonymous namespace)::Cache::load",
    ),
    ("tagged[abi:cxx11](int)", "tagged"),
    (
        "Foo::operator std::vector<int>() const",
        "Foo::operator std::vector",
    ),
    (
        "Foo::operator unsigned long() const",
        "Foo::operator unsigned long",
    ),
    (
        "Foo::operator void (*)(int)() const",
        "Foo::operator void (*)(int)",
    ),
    (
        "std::ostream& std::operator<< <char>(std::ostream&, char)",
        "std::operator<<",
    ),
    ("operator new(unsigned long)", "operator new"),
    (
        "operator new[](unsigned long, std::nothrow_t const&)",
        "operator new[]",
    ),
    (
        "unsigned int operator\"\" _kib(unsigned long long)",
        "operator\"\" _kib",
    ),
    ("bool Foo::operator<(Foo const&) const", "Foo::operator<"),
    ("Foo::operator->() const", "Foo::operator->"),
    ("int (*pointer(int (*)(long, ...)))(long, ...)", "pointer"),
    ("int (&grid<2, 7ul>(int (&) [2][3]))[2][3]", "grid"),
    (
        "std::enable_if<!(std::is_array<Foo>::value), Foo>::type lib::pick<Foo>(Foo)",
        "lib::pick",
    ),
    ("void f<((3)>(2))>()", "f"),
    ("void f<(1)<(2)>(int)", "f"),
    (
        "<alloc::vec::Vec<T> as core::ops::Drop>::drop",
        "<alloc::vec::Vec as core::ops::Drop>::drop",
    ),
    (
        "<T as my::Trait<std::string::String>>::f",
        "<T as my::Trait>::f",
    ),
    (
        "core::iter::Iterator::collect::<alloc::vec::Vec<u8>>",
        "core::iter::Iterator::collect",
    ),
    ("my::run::{{closure}}", "my::run::{{closure}}"),
    (
        "my::run::{closure#0}::<fn(u8) -> u8>",
        "my::run::{closure#0}",
    ),
    (
        "my::f::<dyn core::ops::Fn(std::string::String) -> u8>",
        "my::f",
    ),
    ("xmalloc.part.0", "xmalloc"),
    ("malloc@@GLIBC_2.2.5", "malloc"),
    ("malloc@plt", "malloc"),
    ("libfoo.so+0x1234", "libfoo.so+0x1234"),
    ("0x7f00", "0x7f00"),
    ("void_operator_x<int>()", "void_operator_x"),
    ("vtable for Foo", "Foo"),
    ("", ""),
    ("<", "<>"),
    ("f(", "f"),
    ("(", "("),
    (" ", " "),
    ("f<", "f"),
];

#[test]
fn by_hand() {
    for (signature, name) in BY_HAND {
        assert_eq!(own_name(signature), *name, "from {signature}");
    }
}

/// Pseudo-random numbers, the same each time.
struct Dice(Random);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0.index(bound)
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// A type, as it stands in parameters, arguments and returns. All of them name what is plumbing.
fn any_type(dice: &mut Dice, depth: u32) -> String {
    let inner = |dice: &mut Dice| match depth {
        0 => "std::__x".to_owned(),
        _ => any_type(dice, depth - 1),
    };
    match dice.below(12) {
        0 => "int".into(),
        1 => "std::string const&".into(),
        2 => "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >&&"
            .into(),
        3 => format!(
            "std::vector<{}, std::allocator<{}> >",
            inner(dice),
            inner(dice)
        ),
        4 => format!("{} (*)({}, {})", inner(dice), inner(dice), inner(dice)),
        5 => format!("std::function<{} ({})>", inner(dice), inner(dice)),
        6 => format!("{} (&) [{}]", inner(dice), dice.below(99)),
        7 => format!("{} (std::_Foo::*)({}) const", inner(dice), inner(dice)),
        8 => format!(
            "std::enable_if<((sizeof ({}))>(4ul)), {}>::type",
            inner(dice),
            inner(dice)
        ),
        9 => format!("lib::Of<{}>::{{lambda({})#2}}", inner(dice), inner(dice)),
        10 => format!(
            "decltype (({{parm#1}})+((std::declval<{}>)()))",
            inner(dice)
        ),
        _ => "unsigned long".into(),
    }
}

fn arguments(dice: &mut Dice) -> String {
    let all: Vec<String> = (0..dice.below(3)).map(|_| any_type(dice, 2)).collect();
    let text = all.join(", ");
    match text.ends_with('>') {
        true => format!("<{text} >"),
        false => format!("<{text}>"),
    }
}

fn params(dice: &mut Dice) -> String {
    let all: Vec<String> = (0..dice.below(4)).map(|_| any_type(dice, 2)).collect();
    format!("({})", all.join(", "))
}

/// A C++ signature and its qualified name.
fn signature(dice: &mut Dice) -> (String, String) {
    let (mut text, mut name) = (String::new(), String::new());
    let mut push = |text: &mut String, part: &str| {
        text.push_str(part);
        name.push_str(part);
    };
    let mut templated = false;
    for _ in 0..dice.below(4) {
        match dice.below(5) {
            0 => push(&mut text, "(anonymous namespace)"),
            1 => {
                push(&mut text, "Cache");
                text += &arguments(dice);
            }
            2 => {
                push(&mut text, "run");
                text += &params(dice);
                text += dice.of(&["", " const", " const &"]);
            }
            3 => {
                push(&mut text, "{lambda");
                text += &params(dice);
                push(&mut text, "#1}");
            }
            _ => push(&mut text, "lib"),
        }
        push(&mut text, "::");
    }
    match dice.below(8) {
        0 => push(
            &mut text,
            dice.of(&[
                "operator()",
                "operator[]",
                "operator==",
                "operator,",
                "operator->",
            ]),
        ),
        1 => {
            push(&mut text, dice.of(&["operator<", "operator<<"]));
            text += " ";
            text += &arguments(dice);
            templated = true;
        }
        2 => push(
            &mut text,
            dice.of(&["operator new", "operator delete[]", "operator co_await"]),
        ),
        3 => {
            push(&mut text, "store");
            text += dice.of(&["[abi:cxx11]", "[abi:one][abi:two]"]);
        }
        4 => push(
            &mut text,
            dice.of(&["~Cache", "operator bool", "operator unsigned char"]),
        ),
        _ => {
            push(&mut text, "put_2");
            text += &arguments(dice);
            templated = true;
        }
    }
    text += &params(dice);
    text += dice.of(&[
        "",
        " const",
        " const &",
        " &&",
        " volatile",
        " [clone .cold]",
    ]);
    if templated && dice.below(2) == 0 {
        let returned = match dice.below(3) {
            0 => "decltype(auto)".to_owned(),
            1 => "auto".to_owned(),
            // What has a declarator of its own is written around the name.
            _ => loop {
                let returned = any_type(dice, 2);
                if !returned.contains("(*)(")
                    && !returned.contains("(&) [")
                    && !returned.contains("::*)(")
                {
                    break returned;
                }
            },
        };
        text = format!("{returned} {text}");
    }
    (text, name)
}

/// qualified.Q1, for signatures of every make.
#[test]
fn what_is_given_and_returned_is_not_in_the_name() {
    let mut dice = Dice(Random::new(0x9e37_79b9_7f4a_7c15));
    for round in 0..20_000 {
        let (text, name) = signature(&mut dice);
        // A local function's own qualifiers stand before the next `::`.
        assert_eq!(own_name(&text), name, "round {round}: {text}");
    }
}

#[test]
fn rust_names_lose_what_is_generic() {
    let mut dice = Dice(Random::new(7));
    for _ in 0..5_000 {
        let mut generic = String::from("u8");
        for _ in 0..dice.below(5) {
            generic = match dice.below(6) {
                0 => format!("alloc::vec::Vec<{generic}>"),
                1 => format!("<{generic} as std::_x::Trait>::Out"),
                2 => format!("[{generic}; 4]"),
                3 => format!("fn({generic}) -> {generic}"),
                4 => format!("({generic}, &mut {generic})"),
                _ => format!("dyn core::ops::Fn({generic})"),
            };
        }
        for (text, name) in [
            (format!("my::Store<{generic}>::put"), "my::Store::put"),
            (format!("my::put::<{generic}>"), "my::put"),
            (
                format!("<my::Store<{generic}> as other::Put<{generic}>>::put"),
                "<my::Store as other::Put>::put",
            ),
            (
                format!("<my::Store<{generic}>>::put::{{closure#0}}"),
                "<my::Store>::put::{closure#0}",
            ),
        ] {
            assert_eq!(own_name(&text), name, "from {text}");
        }
    }
}

/// qualified.Q2: cuts and changes of any place.
#[test]
fn any_text_has_a_name() {
    let mut dice = Dice(Random::new(11));
    for _ in 0..2_000 {
        let (text, _) = signature(&mut dice);
        let at = dice.below(text.len());
        assert!(!own_name(&text[..at.max(1)]).is_empty());
        let changed = text.replace(
            dice.of(&["<", ">", "(", ")", "::", "{", " "]),
            dice.of(&["", "<", "(", "日"]),
        );
        assert!(changed.is_empty() || !own_name(&changed).is_empty());
    }
    for text in [
        "(".repeat(20_000),
        "<".repeat(20_000),
        "operator".repeat(5_000),
        "a (".repeat(9_000),
    ] {
        assert!(!own_name(&text).is_empty());
    }
}

#[test]
fn operators_that_begin_like_a_word_are_told_apart() {
    // To a type whose name begins with a word that may follow `operator`.
    assert_eq!(
        own_name("S::operator newtype const&() const"),
        "S::operator newtype const&"
    );
    assert_eq!(
        own_name("S::operator new(unsigned long, S const&)"),
        "S::operator new"
    );
    // A space parts any sign from its arguments.
    for sign in [",", "<", "=="] {
        let said = format!("S::operator{sign} <int>(S const&)");
        assert_eq!(own_name(&said), format!("S::operator{sign}"));
    }
}
