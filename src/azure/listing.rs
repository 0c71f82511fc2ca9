//! The blobs of a container, page by page, under the very names that they have.
//!
//! `object_store` makes paths of names and trims blanks off them, and one name that is no path spoils the answer that it is
//! in. What this program lists in a container that others write to is therefore asked for here: one request for 5,000 blobs,
//! with their metadata, so that no blob needs a second look.

use chrono::{DateTime, Utc};
use percent_encoding::percent_decode_str;

use super::blobs::Blobs;
use crate::error::{Error, Result};

/// Blobs that one answer holds at most, by the service's rule.
pub const AT_ONCE: usize = 5000;

/// What tools write into the metadata of an empty blob that stands for a folder.
pub const FOLDER_MARK: &str = "hdi_isfolder";

/// One blob as a listing has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name, which need be no path.
    pub name: String,
    /// The version's etag, without quotes.
    pub etag: String,
    /// Size in bytes.
    pub bytes: u64,
    /// When it was written.
    pub last_modified: DateTime<Utc>,
    /// Whether it only stands for a folder.
    pub is_folder: bool,
}

/// A part of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The blobs, in the order of their names.
    pub blobs: Vec<Listed>,
    /// Where the next part begins; none when this is the last.
    pub next: Option<String>,
}

impl Blobs {
    /// The blobs from `marker` on, which is what the part before said comes next: `most` of them, [`AT_ONCE`] at most.
    ///
    /// # Errors
    /// The account refused, did not answer, or answered with something else.
    pub async fn page(&self, marker: Option<&str>, most: usize) -> Result<Page> {
        let mut query = vec![("restype", "container"), ("comp", "list"), ("include", "metadata")];
        let most = most.min(AT_ONCE).to_string();
        query.push(("maxresults", &most));
        query.extend(marker.map(|marker| ("marker", marker)));
        let body = self.ask(&query, "listing").await?;
        let text = std::str::from_utf8(&body).ok().and_then(parse);
        text.ok_or_else(|| {
            Error::unavailable(format!("the container {} was listed, and the answer is no list", self.name()))
                .remedy("see that the account's endpoint is that of its blobs, with no proxy before it")
        })
    }
}

/// Reads an answer. The service writes it by machine and in one form only; a reader for any XML would take the blanks at the
/// ends of a name for layout.
fn parse(text: &str) -> Option<Page> {
    let (_, mut rest) = text.split_once("<EnumerationResults")?;
    let mut blobs = Vec::new();
    while let Some((inside, after)) = element(rest, "Blob") {
        blobs.push(blob(inside)?);
        rest = after;
    }
    let next = element(rest, "NextMarker").map(|(marker, _)| unescaped(marker)).filter(|marker| !marker.is_empty());
    Some(Page { blobs, next })
}

fn blob(text: &str) -> Option<Listed> {
    let (_, tag) = text.split_once("<Name")?;
    let (attributes, tag) = tag.split_once('>')?;
    let (name, rest) = match attributes.ends_with('/') {
        true => ("", tag),
        false => tag.split_once("</Name>")?,
    };
    let name = unescaped(name);
    // Characters that XML does not have.
    let name = match attributes.contains("Encoded=\"true\"") {
        true => percent_decode_str(&name).decode_utf8_lossy().into_owned(),
        false => name,
    };
    let (properties, rest) = element(rest, "Properties")?;
    let property = |name: &str| element(properties, name).map(|(value, _)| value.trim());
    let modified = DateTime::parse_from_rfc2822(property("Last-Modified")?).ok()?;
    let metadata = element(rest, "Metadata").map_or("", |(inside, _)| inside);
    let is_marked = element(metadata, FOLDER_MARK).is_some_and(|(value, _)| value.trim() == "true");
    let bytes = property("Content-Length")?.parse().ok()?;
    let is_folder = is_marked && bytes == 0 || property("ResourceType") == Some("directory");
    let etag = unescaped(property("Etag")?).trim_matches('"').to_owned();
    Some(Listed { name, etag, bytes, last_modified: modified.to_utc(), is_folder })
}

/// The inside of the first element of a name that has no attributes, and what comes after it.
fn element<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>"))
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, reference)) = rest.split_once('&') {
        out.push_str(before);
        let known = reference.split_once(';').and_then(|(name, after)| Some((character(name)?, after)));
        match known {
            Some((character, after)) => {
                out.push(character);
                rest = after;
            }
            None => {
                out.push('&');
                rest = reference;
            }
        }
    }
    out.push_str(rest);
    out
}

fn character(reference: &str) -> Option<char> {
    match reference {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let digits = reference.strip_prefix('#')?;
            let code = match digits.strip_prefix(['x', 'X']) {
                Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
                None => digits.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(blobs: &[String], next: &str) -> String {
        format!(
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"http://a/\" \
             ContainerName=\"landing\"><MaxResults>5000</MaxResults><Blobs>{}</Blobs>{next}</EnumerationResults>",
            blobs.concat()
        )
    }

    fn entry(name: &str, bytes: u64, more: &str, metadata: &str) -> String {
        format!(
            "<Blob>{name}<Properties><Creation-Time>Thu, 15 Jan 2026 09:00:00 GMT</Creation-Time>\
             <Last-Modified>Thu, 15 Jan 2026 10:00:00 GMT</Last-Modified><Etag>0x8DC</Etag>\
             <Content-Length>{bytes}</Content-Length><Content-MD5 />{more}</Properties>{metadata}<OrMetadata /></Blob>"
        )
    }

    #[test]
    fn names_are_read_to_the_letter() {
        for (xml, name) in [
            ("<Name>a/b.csv</Name>", "a/b.csv"),
            ("<Name> blanks at both ends </Name>", " blanks at both ends "),
            ("<Name>a//x</Name>", "a//x"),
            ("<Name>a/../x</Name>", "a/../x"),
            ("<Name>a\nb&#xD;&#10;</Name>", "a\nb\r\n"),
            ("<Name>&amp;amp; &lt;b&gt; &quot;&apos; &nothing; & </Name>", "&amp; <b> \"' &nothing; & "),
            ("<Name Encoded=\"true\">a%EF%BF%BEb%20c</Name>", "a\u{fffe}b c"),
            ("<Name>100%25</Name>", "100%25"),
            ("<Name />", ""),
        ] {
            let page = parse(&answer(&[entry(xml, 3, "", "")], "<NextMarker />")).unwrap();
            assert_eq!(page.next, None);
            let [blob] = page.blobs.as_slice() else { panic!("{xml}: {page:?}") };
            assert_eq!((blob.name.as_str(), blob.bytes, blob.etag.as_str()), (name, 3, "0x8DC"), "{xml}");
            assert_eq!(blob.last_modified.to_rfc3339(), "2026-01-15T10:00:00+00:00");
        }
    }

    #[test]
    fn what_stands_for_a_folder_is_seen() {
        let mark = "<Metadata><Name>no name</Name><hdi_isfolder>true</hdi_isfolder></Metadata>";
        for (bytes, more, metadata, is_folder) in [
            (0, "", mark, true),
            (1, "", mark, false),
            (0, "", "<Metadata />", false),
            (0, "<ResourceType>directory</ResourceType>", "", true),
            (0, "<ResourceType>file</ResourceType>", "", false),
        ] {
            let page = parse(&answer(&[entry("<Name>x</Name>", bytes, more, metadata)], "")).unwrap();
            assert_eq!(page.blobs[0].is_folder, is_folder, "{bytes} {more} {metadata}");
        }
    }

    #[test]
    fn parts_follow_each_other_and_other_answers_are_none() {
        let page = parse(&answer(
            &[entry("<Name>a</Name>", 1, "", ""), entry("<Name>b</Name>", 2, "", "")],
            "<NextMarker>2!76!&amp;</NextMarker>",
        ));
        let page = page.unwrap();
        assert_eq!((page.blobs.len(), page.next.as_deref()), (2, Some("2!76!&")));
        assert_eq!(parse(&answer(&[], "<NextMarker/>")).unwrap(), Page::default());
        for other in ["", "<html></html>", "<EnumerationResults><Blobs><Blob><Name>a</Name></Blob></Blobs>"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
