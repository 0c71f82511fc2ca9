//! Other people's readers, through `tests/readback.py`.

use std::process::Command;

use super::root;

/// Runs `tests/readback.py` and gives the JSON that it prints.
pub fn readback(arguments: &[&str]) -> serde_json::Value {
    let Some(python) = std::env::var_os("ALLUVIUM_TEST_PYTHON") else {
        panic!("ALLUVIUM_TEST_PYTHON is not set: run the tests by tests/run, which installs the readers");
    };
    let output = Command::new(python).arg(root().join("tests/readback.py")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
