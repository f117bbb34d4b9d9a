//! What the allocator keeps for later is given back to the system when a rush is over: an operator that has just started a thousand
//! jobs has some megabytes of holes, and nothing to put there.

/// Gives back what is free. It takes about a millisecond.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn give_back() {
    #[expect(
        unsafe_code,
        reason = "takes a number, and locks what it looks at: there is nothing to do wrong"
    )]
    // SAFETY: `malloc_trim` may be called at any time from any thread.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Other allocators have their own ways.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() {}
