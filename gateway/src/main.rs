//! The binary `tidegate`: hands over to the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate::cli::main()
}
