//! Other people's readers, through the scripts beside the tests.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::root;

/// Runs `tests/readback.py` and gives the JSON that it prints.
pub fn readback(arguments: &[&str]) -> serde_json::Value {
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    run("readback.py", &arguments)
}

/// Runs `tests/differential.py` over a folder and gives the JSON that it prints.
pub fn differential(folder: &Path) -> serde_json::Value {
    run("differential.py", &[folder.as_os_str()])
}

fn run(script: &str, arguments: &[&OsStr]) -> serde_json::Value {
    let Some(python) = std::env::var_os("ALLUVIUM_TEST_PYTHON") else {
        panic!("ALLUVIUM_TEST_PYTHON is not set: run the tests by tests/run, which installs the readers");
    };
    let output = Command::new(python).arg(root().join("tests").join(script)).args(arguments).output().unwrap();
    assert!(output.status.success(), "{script} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
