//! A package whose tests have budgets.

/// Returns so many bytes.
#[inline(never)]
pub fn load(bytes: usize) -> Vec<u8> {
    vec![1; bytes]
}

#[cfg(test)]
mod tests {
    use super::load;

    #[test]
    fn small() {
        assert_eq!(load(1000).len(), 1000);
    }

    #[test]
    fn large() {
        assert_eq!(load(8 << 20).len(), 8 << 20);
    }
}

#[cfg(test)]
mod unbound {
    #[test]
    fn free() {}

    #[test]
    fn tests_fails() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_none(), "it fails on purpose");
    }
}
