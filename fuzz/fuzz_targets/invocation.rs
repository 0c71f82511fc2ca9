//! See `alluvium::fuzz::invocation`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium::fuzz::invocation(bytes).unwrap_or_else(|found| panic!("{found}")));
