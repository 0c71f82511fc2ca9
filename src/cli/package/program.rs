//! Whether a program can be deployed: an ELF file for x86-64, and the newest glibc that it asks for.

use std::path::Path;

use memchr::memmem;

use crate::error::{Error, Result};

/// The oldest glibc that a function app's Linux has, as far as this program promises to run on.
pub(super) const OLDEST_GLIBC: (u32, u32) = (2, 28);

/// The newest glibc that the program asks for; none when it asks for none (it is linked statically).
///
/// # Errors
/// It cannot be read, or is not for Linux on x86-64.
pub(super) fn examine(binary: &Path) -> Result<Option<(u32, u32)>> {
    let bytes = std::fs::read(binary).map_err(|error| Error::from(error).within(binary.display()))?;
    if !is_elf_x86_64(&bytes) {
        return Err(Error::invalid(format!("{} is no program for Linux on x86-64", binary.display()))
            .remedy("name one with --binary; `tests/run --package` builds it"));
    }
    Ok(newest_glibc(&bytes))
}

/// The magic number, 64 bits, little-endian, and the machine number of x86-64.
fn is_elf_x86_64(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF\x02\x01") && bytes.get(18..20) == Some(&[0x3e, 0])
}

/// Versions that a program needs are in it as text. One that stands there for another reason only makes the answer newer.
fn newest_glibc(bytes: &[u8]) -> Option<(u32, u32)> {
    let marker = b"GLIBC_2.";
    memmem::find_iter(bytes, marker)
        .filter_map(|at| {
            let digits = bytes[at + marker.len()..].iter().take_while(|byte| byte.is_ascii_digit());
            let text: String = digits.map(|digit| char::from(*digit)).collect();
            text.parse().ok().map(|minor| (2, minor))
        })
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_linux_on_x86_64_is_deployed() {
        let header = |bits: u8, order: u8, machine: u8| {
            let mut bytes = vec![0x7f, b'E', b'L', b'F', bits, order];
            bytes.resize(18, 0);
            bytes.extend([machine, 0]);
            bytes
        };
        assert!(is_elf_x86_64(&header(2, 1, 0x3e)));
        for other in [header(1, 1, 0x3e), header(2, 2, 0x3e), header(2, 1, 0xb7), b"MZ".to_vec(), Vec::new()] {
            assert!(!is_elf_x86_64(&other), "{other:?}");
        }
    }

    #[test]
    fn the_newest_glibc_counts_by_number() {
        assert_eq!(newest_glibc(b"..GLIBC_2.2.5\0GLIBC_2.28\0GLIBC_2.9\0"), Some((2, 28)));
        assert_eq!(newest_glibc(b"GLIBC_2."), None);
        assert_eq!(newest_glibc(b"GLIBC_PRIVATE"), None);
    }
}
