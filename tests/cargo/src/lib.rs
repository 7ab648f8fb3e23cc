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
mod waited_for {
    use std::io::Read;

    /// Whether a thread sleeps. It takes no block: how often this is asked is to change no figure.
    fn sleeps(stat: &str) -> bool {
        let mut bytes = [0; 512];
        let mut file = std::fs::File::open(stat).expect("its state");
        let length = file.read(&mut bytes).expect("its state");
        bytes[..length].windows(3).any(|three| three == b") S")
    }

    /// Ends when the harness's thread waits for it: that takes some blocks. A test that ends before takes none of them.
    #[test]
    fn the_harness_sleeps() {
        let pid = std::process::id();
        let stat = format!("/proc/self/task/{pid}/stat");
        for _ in 0..10_000_000 {
            if sleeps(&stat) {
                return;
            }
            std::thread::yield_now();
        }
        panic!("the harness's thread does not wait");
    }
}

#[cfg(test)]
mod unbound {
    #[test]
    fn free() {}

    #[test]
    fn tests_fails() {
        assert!(
            std::env::var_os("CARGO_MANIFEST_DIR").is_none(),
            "it fails on purpose"
        );
    }
}
