//! When the OS refuses: what is given up before a call fails.
//!
//! Not here: giving back in good time (`purger`).

/// Something may have become free: try again. `false`: nothing more can be done.
pub fn out_of_memory(_n: usize) -> bool {
    crate::harden::relieve()
}
