//! The binary `tidegate`: hands over to the command line.

use std::process::ExitCode;

/// It gives memory back: after 5,000 streams glibc's kept all that they had taken (see benches).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate::cli::main()
}
