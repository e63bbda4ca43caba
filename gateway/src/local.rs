//! Which errors of a connection are this machine's own: no descriptor, no port, no memory is left here. They say
//! nothing about the peer, so no replica is blamed for them.

use std::io;

use rustix::io::Errno;

const OWN: [Errno; 6] =
    [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM, Errno::AGAIN];

/// Whether a connection could not be made because of this machine, whatever the peer would have said.
pub fn is_local(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| OWN.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_is_this_machines_fault_and_a_refusal_the_peers() {
        for errno in OWN {
            assert!(is_local(&errno.into()));
        }
        for errno in [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::TIMEDOUT, Errno::CONNRESET] {
            assert!(!is_local(&errno.into()));
        }
        assert!(!is_local(&io::Error::other("no errno")));
    }
}
