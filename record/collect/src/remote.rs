//! Memory of another process, read while it runs.
//!
//! ```text
//!   addresses ─► process_vm_readv, up to a thousand pieces a call ─► bytes, or none
//! ```
//!
//! M1  What could not be read whole is not there. Words change while they are read: the caller looks twice.
//! M2  One byte is written, before the program's first instruction or while it waits for our answer: `GoProgram::switch_on`.
//!
//! Not here: what the bytes mean.

/// The pieces of one call (`IOV_MAX`).
const PIECES: usize = 1024;

/// A process whose memory may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) pid: u32,
}

impl Remote {
    /// Fills `to` from an address; false if not all of it could be read.
    pub(crate) fn read(self, at: u64, to: &mut [u8]) -> bool {
        let each = to.len();
        each == 0 || self.read_all(&[at], each, to) == 1
    }

    /// Returns the word at an address.
    pub(crate) fn word(self, at: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read(at, &mut word).then(|| u64::from_le_bytes(word))
    }

    /// Sets a byte to zero, if it can be written.
    pub(super) fn clear(self, at: u64) {
        let mut zero = [0u8];
        let local = libc::iovec {
            iov_base: zero.as_mut_ptr().cast(),
            iov_len: 1,
        };
        let remote = libc::iovec {
            iov_base: at as *mut libc::c_void,
            iov_len: 1,
        };
        // SAFETY: the local vector is our byte; the remote one is a variable of another process, which stands still (M2).
        unsafe { libc::process_vm_writev(self.pid as i32, &local, 1, &remote, 1, 0) };
    }

    /// Returns so many words from an address.
    pub(crate) fn words(self, at: u64, count: usize) -> Option<Vec<u64>> {
        let mut bytes = vec![0; count.checked_mul(8)?];
        self.read(at, &mut bytes).then(|| words(&bytes))
    }

    /// Reads pieces of `each` bytes one behind the other into `to`; returns how many it read before one that is not there.
    pub(crate) fn read_all(self, at: &[u64], each: usize, to: &mut [u8]) -> usize {
        let mut done = 0;
        for (places, to) in at.chunks(PIECES).zip(to.chunks_mut(PIECES * each.max(1))) {
            let local = libc::iovec {
                iov_base: to.as_mut_ptr().cast(),
                iov_len: to.len().min(places.len() * each),
            };
            let remote: Vec<libc::iovec> = places
                .iter()
                .map(|&at| libc::iovec {
                    iov_base: at as *mut libc::c_void,
                    iov_len: each,
                })
                .collect();
            // SAFETY: the local vector is a part of `to`, whole; the remote ones are only read, in another process.
            let got = unsafe {
                let count = remote.len() as libc::c_ulong;
                libc::process_vm_readv(self.pid as i32, &local, 1, remote.as_ptr(), count, 0)
            };
            let read = usize::try_from(got).unwrap_or(0) / each.max(1);
            done += read.min(places.len());
            if read < places.len() {
                break;
            }
        }
        done
    }
}

/// Returns bytes as words.
pub(crate) fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_up_to_one_that_is_not_there() {
        let own = Remote {
            pid: std::process::id(),
        };
        let values: Vec<u64> = (0..3000).collect();
        let at: Vec<u64> = values
            .iter()
            .map(|one| std::ptr::from_ref(one) as u64)
            .collect();
        let mut to = vec![0; at.len() * 8];
        assert_eq!(own.read_all(&at, 8, &mut to), at.len());
        assert_eq!(words(&to), values);
        let mut broken = at.clone();
        broken[2000] = 16;
        assert_eq!(own.read_all(&broken, 8, &mut to), 2000);
        assert_eq!(own.word(at[7]), Some(7));
        assert_eq!(own.word(16), None);
        assert_eq!(own.words(at[5], 3), Some(vec![5, 6, 7]));
    }
}
