// SPDX-License-Identifier: Apache-2.0

//! Lies beside the program of a POST /run: what it hands over as metadata. There is no serde
//! without a network, so `set_metadata` takes what `Json` is implemented for: strings, numbers,
//! booleans, options, slices, vectors and maps of these. Anything else goes through
//! `set_metadata_raw`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::{fs, io};

const PATH: &str = "/metadata/.quartermaster_metadata.json";

/// What can say itself in JSON.
pub trait Json {
    fn write_json(&self, to: &mut String);
}

/// Makes `data` the metadata of the answer.
pub fn set_metadata<T: Json + ?Sized>(data: &T) -> io::Result<()> {
    let mut text = String::new();
    data.write_json(&mut text);
    set_metadata_raw(&text)
}

/// The same from JSON that is text already.
pub fn set_metadata_raw(json: &str) -> io::Result<()> {
    fs::write(PATH, json)
}

/// What was set before, as text; `None` when nothing was.
pub fn get_metadata_raw() -> io::Result<Option<String>> {
    match fs::read_to_string(PATH) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The same, read by `FromStr` of a type of yours.
pub fn get_metadata<T: std::str::FromStr>() -> io::Result<Option<T>> {
    match get_metadata_raw()? {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "not such a value")),
        },
    }
}

fn write_text(text: &str, to: &mut String) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                to.push('\\');
                to.push(c);
            }
            c if (c as u32) < 0x20 => {
                let _ = write!(to, "\\u{:04x}", c as u32);
            }
            c => to.push(c),
        }
    }
    to.push('"');
}

impl Json for str {
    fn write_json(&self, to: &mut String) {
        write_text(self, to);
    }
}

impl Json for String {
    fn write_json(&self, to: &mut String) {
        write_text(self, to);
    }
}

impl<T: Json + ?Sized> Json for &T {
    fn write_json(&self, to: &mut String) {
        (**self).write_json(to);
    }
}

macro_rules! as_displayed {
    ($($type:ty)*) => {$(
        impl Json for $type {
            fn write_json(&self, to: &mut String) {
                let _ = write!(to, "{}", self);
            }
        }
    )*};
}
as_displayed!(bool i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

macro_rules! finite_or_null {
    ($($type:ty)*) => {$(
        impl Json for $type {
            fn write_json(&self, to: &mut String) {
                let _ = if self.is_finite() { write!(to, "{}", self) } else { write!(to, "null") };
            }
        }
    )*};
}
finite_or_null!(f32 f64);

impl<T: Json> Json for Option<T> {
    fn write_json(&self, to: &mut String) {
        match self {
            Some(value) => value.write_json(to),
            None => to.push_str("null"),
        }
    }
}

impl<T: Json> Json for [T] {
    fn write_json(&self, to: &mut String) {
        to.push('[');
        for (i, item) in self.iter().enumerate() {
            if i > 0 {
                to.push(',');
            }
            item.write_json(to);
        }
        to.push(']');
    }
}

impl<T: Json, const N: usize> Json for [T; N] {
    fn write_json(&self, to: &mut String) {
        self[..].write_json(to);
    }
}

impl<T: Json> Json for Vec<T> {
    fn write_json(&self, to: &mut String) {
        self[..].write_json(to);
    }
}

fn write_map<'a, K: AsRef<str> + 'a, V: Json + 'a>(
    items: impl Iterator<Item = (&'a K, &'a V)>,
    to: &mut String,
) {
    to.push('{');
    for (i, (key, value)) in items.enumerate() {
        if i > 0 {
            to.push(',');
        }
        write_text(key.as_ref(), to);
        to.push(':');
        value.write_json(to);
    }
    to.push('}');
}

impl<K: AsRef<str>, V: Json> Json for HashMap<K, V> {
    fn write_json(&self, to: &mut String) {
        write_map(self.iter(), to);
    }
}

impl<K: AsRef<str>, V: Json> Json for BTreeMap<K, V> {
    fn write_json(&self, to: &mut String) {
        write_map(self.iter(), to);
    }
}
