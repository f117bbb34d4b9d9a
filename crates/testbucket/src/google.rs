//! Google's dialect: their XML API is that of S3, with tokens instead of signatures and other names of headers.
//!
//! Only what differs is told here, as far as our client makes use of it. Nobody has held it against the real service.

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderName};
use hyper::{Request, Response, StatusCode};

use crate::answered;

/// Where a pod asks for the token of its service account.
const TOKENS: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

/// The account whose tokens are good.
pub const ACCOUNT: &str = "trainer@project.iam.gserviceaccount.com";

/// Makes one of S3's requests of it, unless this is the answer already.
pub(crate) fn translate(request: &mut Request<Incoming>) -> Option<Response<s3s::Body>> {
    if request.uri().path() == TOKENS {
        let is_meant = request.headers().get("metadata-flavor").is_some_and(|flavor| flavor == "Google");
        return Some(if is_meant {
            answered(
                StatusCode::OK,
                r#"{"access_token": "secret", "expires_in": 3600, "token_type": "Bearer"}"#,
            )
        } else {
            answered(StatusCode::FORBIDDEN, "")
        });
    }
    let headers = request.headers_mut();
    let token = headers.remove(AUTHORIZATION);
    let token = token.as_ref().and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if !token.is_some_and(is_good) {
        let says = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>AuthenticationRequired</Code>\
                    <Message>Authentication required.</Message></Error>";
        return Some(answered(StatusCode::UNAUTHORIZED, says));
    }
    for name in ["copy-source"] {
        if let Some(value) = headers.remove(format!("x-goog-{name}")) {
            let name = HeaderName::from_bytes(format!("x-amz-{name}").as_bytes()).unwrap();
            headers.insert(name, value);
        }
    }
    None
}

/// The token of a pod, or one that the account has signed. Nobody checks the signature here.
fn is_good(token: &str) -> bool {
    let mut parts = token.split('.');
    token == "secret"
        || parts.nth(1).is_some_and(|claims| {
            let claims = decoded(claims);
            claims.contains(&format!("\"iss\":\"{ACCOUNT}\"")) && claims.contains("googleapis.com/auth/")
        })
}

/// Base64 for URLs.
fn decoded(text: &str) -> String {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(digit).map(u32::from).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    });
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}
