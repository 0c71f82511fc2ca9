//! What other people's errors say, made short: each layer repeats the layer below, and services answer with documents.

use crate::secret::presentable;

/// What an error and its causes say that `said` does not say already, each thing once, on one line; `said` comes first.
#[must_use]
pub fn causes(said: &str, error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = said.to_owned();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let more = plain(&error.to_string());
        if !more.is_empty() && !text.contains(&more) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// A text on one line, without secrets, documents, and the settings that a client tried by.
fn plain(text: &str) -> String {
    // Other people's errors show the URLs of their requests.
    let text = presentable(&without_queries(&without_documents(text)));
    let text: Vec<&str> = text.split_whitespace().collect();
    without_settings(&text.join(" ")).replace("Server returned non-2xx status code: ", "")
}

/// Takes documents out of a text: of an error in XML its code and the request's id stay.
fn without_documents(text: &str) -> String {
    let Some(begin) =
        ["<?xml", "<Error>", "<!DOCTYPE", "<html", "<HTML"].iter().filter_map(|mark| text.find(mark)).min()
    else {
        return text.to_owned();
    };
    let (before, document) = text.split_at(begin);
    let end = ["</Error>", "</html>", "</HTML>"]
        .iter()
        .filter_map(|mark| document.find(mark).map(|at| at + mark.len()))
        .min()
        .unwrap_or(document.len());
    let (document, after) = document.split_at(end);
    let inside = |name: &str| {
        let (_, rest) = document.split_once(&format!("<{name}>"))?;
        rest.split_once('<').map(|(value, _)| value.trim())
    };
    let id = document
        .split_once("RequestId:")
        .and_then(|(_, rest)| rest.split(|c: char| c.is_whitespace() || c == '<').next());
    let code = inside("Code").unwrap_or("an answer that is a document");
    let id = id.map_or_else(String::new, |id| format!(" (request {id})"));
    format!("{}{code}{id}{}", before.trim_end_matches('\u{feff}'), without_documents(after))
}

/// What is asked of a URL is long, and may hold a signature; where it leads says enough.
fn without_queries(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at + "://".len());
        let end = url.find(|c: char| c.is_whitespace() || "\"'`)>".contains(c)).unwrap_or(url.len());
        let (url, after) = url.split_at(end);
        out.push_str(before);
        out.push_str(url.split('?').next().unwrap_or_default());
        rest = after;
    }
    out.push_str(rest);
    out
}

/// `object_store` says how it tries after every try.
fn without_settings(text: &str) -> String {
    let Some((before, rest)) = text.split_once("Error performing ") else { return text.to_owned() };
    let Some((request, cause)) = rest.split_once(" - ") else { return text.to_owned() };
    let Some((request, tried)) = request.rsplit_once(" in ") else { return text.to_owned() };
    let tried = match tried.split_once(", after ") {
        Some((time, retries)) => {
            let retries = retries.split(' ').next().unwrap_or_default();
            format!(" ({retries} retries in {time})")
        }
        None => String::new(),
    };
    format!("{before}{request}{tried}: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    const DENIED: &str = "The operation lacked the necessary privileges to complete for path raw/t: Error performing GET \
        https://lake.blob.core.windows.net/lake/raw/t?sig=abc%3D in 6.2ms - Server returned non-2xx status code: 403 \
        Forbidden: \u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>AuthenticationFailed</Code><Message>Server \
        failed to authenticate the request.\nRequestId:8b3f-01\nTime:2026-01-15T10:00:00.0000000Z</Message>\
        <AuthenticationErrorDetail>Signature did not match. String to sign used was lake</AuthenticationErrorDetail></Error>";

    #[test]
    fn a_document_leaves_its_code_and_the_requests_id() {
        assert_eq!(
            plain(DENIED),
            "The operation lacked the necessary privileges to complete for path raw/t: GET \
             https://lake.blob.core.windows.net/lake/raw/t: 403 Forbidden: AuthenticationFailed (request 8b3f-01)"
        );
        for (text, clean) in [
            ("502: <html><body>a proxy's page</body></html>", "502: an answer that is a document"),
            ("a <b> and c < d", "a <b> and c < d"),
            ("<?xml version=\"1.0\"?>\n<Error>\n  <Code>X</Code>\n</Error> and more", "X and more"),
            ("cut <?xml version=\"1.0\"?><Error><Code>X</Code><Mess", "cut X"),
            ("two\n lines", "two lines"),
            ("for url (http://a/b?sv=1&sig=c%3D): why? (http://a:1)", "for url (http://a/b): why? (http://a:1)"),
        ] {
            assert_eq!(plain(text), clean);
        }
    }

    #[test]
    fn retries_are_counted_and_not_explained() {
        let text = "Error performing PUT http://127.0.0.1:1/a in 5.12s, after 7 retries, max_retries: 1000, retry_timeout: \
                    5s  - HTTP error: error sending request";
        assert_eq!(plain(text), "PUT http://127.0.0.1:1/a (7 retries in 5.12s): HTTP error: error sending request");
    }

    #[test]
    fn what_was_said_is_not_said_again() {
        let inner = std::io::Error::other("connection refused");
        let middle = Error::unavailable("GET http://a: connection refused").because(inner);
        let outer = Error::unavailable("storage: GET http://a: connection refused").because(middle);
        assert_eq!(causes("", &outer), "storage: GET http://a: connection refused");
        assert_eq!(outer.to_string(), "storage: GET http://a: connection refused");
        let other = Error::unavailable("listing").because(Error::unavailable("no answer"));
        assert_eq!(other.to_string(), "listing: no answer");
    }
}
