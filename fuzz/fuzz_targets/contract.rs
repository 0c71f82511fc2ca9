//! See `alluvium::fuzz::contract`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium::fuzz::contract(bytes).unwrap_or_else(|found| panic!("{found}")));
