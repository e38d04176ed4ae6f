//! Every row of the table against every role, at both doors; and what a keyring refuses.

use placet_edge::roles::{Access, Role, TABLE};
use placet_edge::{Keyring, roles};

use crate::client::{ask, grpc_head};
use crate::fake::APPROVAL_ID;
use crate::house::{House, token};

fn may(access: Access, role: Role) -> bool {
    match access {
        Access::AnyOf(roles) => roles.contains(&role),
        Access::Open | Access::AnyToken => true,
    }
}

pub(crate) fn path(route: &str) -> String {
    let id = if route.contains("members") {
        "7"
    } else if route.contains("evidence") {
        "aud-7"
    } else {
        APPROVAL_ID
    };
    route.replace("{id}", id).replace("{digest}", &"ab".repeat(32))
}

#[tokio::test]
async fn http_routes_take_their_roles_only() {
    let house = House::open().await;
    for row in TABLE {
        let Some((method, route)) = row.http else { continue };
        for role in Role::ALL {
            let got = ask(method, path(route)).token(Some(token(role))).of(&house).await;
            let refused = got.status == 403;
            assert_eq!(refused, !may(row.access, role), "{method} {route} as {role:?}: {}", got.status);
            assert_ne!(got.status, 401);
            if refused {
                assert_eq!(got.json()["code"], "forbidden");
            }
        }
        let none = ask(method, path(route)).token(None).of(&house).await;
        assert_eq!(none.status == 401, row.access != Access::Open, "{method} {route} without a token: {}", none.status);
        let unknown = ask(method, path(route)).token(Some("not-a-token-of-this-house".to_owned())).of(&house).await;
        assert_eq!((unknown.status.as_u16(), unknown.header("www-authenticate")), (401, "Bearer"), "{method} {route}");
        assert_eq!(unknown.json()["code"], "unauthenticated");
    }
}

#[tokio::test]
async fn grpc_methods_take_their_roles_only() {
    let house = House::open().await;
    for row in TABLE {
        let Some(path) = row.grpc else { continue };
        for role in Role::ALL {
            let (status, headers) = grpc_head(house.grpc, path, Some(&token(role))).await;
            assert_eq!(status == Some(7), !may(row.access, role), "{path} as {role:?}: {status:?}");
            assert!(!matches!(status, Some(12 | 16)), "{path} as {role:?}: {status:?}");
            if status == Some(7) {
                assert_eq!(headers["placet-code"], "forbidden");
            }
        }
        let (none, _) = grpc_head(house.grpc, path, None).await;
        assert_eq!(none == Some(16), row.access != Access::Open, "{path} without a token: {none:?}");
        let (unknown, headers) = grpc_head(house.grpc, path, Some("not-a-token-of-this-house")).await;
        assert_eq!((unknown, &headers["placet-code"]), (Some(16), &"unauthenticated".parse().unwrap()), "{path}");
    }
    let (status, _) = grpc_head(house.grpc, "/placet.v1.DecisionService/Nothing", Some(&token(Role::Decide))).await;
    assert_eq!(status, Some(12));
}

/// Goal: no method of the proto is without a row, whoever adds one.
#[test]
fn every_method_has_a_row() {
    let descriptors: prost_types_shim::FileDescriptorSet =
        prost::Message::decode(placet_wire::v1::DESCRIPTORS).unwrap();
    let mut count = 0;
    for file in descriptors.file {
        for service in file.service {
            for method in service.method {
                let path = format!("/{}.{}/{}", file.package, service.name, method.name);
                assert!(roles::grpc_row(&path).is_some(), "{path}");
                count += 1;
            }
        }
    }
    assert_eq!(count, 35);
}

/// The few parts of `google.protobuf.FileDescriptorSet` that the test above reads.
mod prost_types_shim {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct FileDescriptorSet {
        #[prost(message, repeated, tag = "1")]
        pub(crate) file: Vec<File>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct File {
        #[prost(string, tag = "2")]
        pub(crate) package: String,
        #[prost(message, repeated, tag = "6")]
        pub(crate) service: Vec<Service>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Service {
        #[prost(string, tag = "1")]
        pub(crate) name: String,
        #[prost(message, repeated, tag = "2")]
        pub(crate) method: Vec<Method>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Method {
        #[prost(string, tag = "1")]
        pub(crate) name: String,
    }
}

#[tokio::test]
async fn a_credential_is_one_bearer_header() {
    let house = House::open().await;
    let good = token(Role::Audit);
    for (value, status) in [
        (format!("Bearer {good}"), 200),
        (format!("bearer {good}"), 200),
        (format!("Basic {good}"), 401),
        (good.clone(), 401),
        ("Bearer ".to_owned(), 401),
        (format!("Bearer {good} x"), 401),
    ] {
        let got = ask("GET", "/v1/killswitch").token(None).header("authorization", &value).of(&house).await;
        assert_eq!(got.status, status, "{value}");
    }
    let twice = ask("GET", "/v1/killswitch").header("authorization", "Bearer x").of(&house).await;
    assert_eq!(twice.status, 401);
}

#[tokio::test]
async fn the_principal_comes_from_the_token() {
    let house = House::open().await;
    ask("GET", "/v1/killswitch").token(Some(token(Role::Audit))).of(&house).await;
    assert_eq!(house.fake.last().principal.as_str(), "auditr");
    house.edge.replace_keyring(
        Keyring::parse(r#"[{"principal":"new","roles":["audit"],"token":"another-token-0123456789"}]"#).unwrap(),
    );
    let old = ask("GET", "/v1/killswitch").token(Some(token(Role::Audit))).of(&house).await;
    let new = ask("GET", "/v1/killswitch").token(Some("another-token-0123456789".to_owned())).of(&house).await;
    assert_eq!((old.status.as_u16(), new.status.as_u16()), (401, 200));
}

#[test]
fn a_keyring_names_the_entry_that_is_wrong() {
    let first = r#"{"principal":"a","roles":["decide"],"token":"0123456789abcdef"}"#;
    let digest = placet_core::ids::Hash::of(b"0123456789abcdef");
    for (second, says) in [
        (r#"{"principal":"b","roles":["decide"],"token":"0123456789abcdef"}"#.to_owned(), "same token as entry 1"),
        (format!(r#"{{"principal":"b","roles":["decide"],"token_blake3":"{digest}"}}"#), "same token as entry 1"),
        (r#"{"principal":"b","roles":[],"token":"0123456789abcdeg"}"#.to_owned(), "has no role"),
        (r#"{"principal":"b","roles":["admin"],"token":"0123456789abcdeg"}"#.to_owned(), "unknown role `admin`"),
        (r#"{"principal":"b","roles":["audit","audit"],"token":"0123456789abcdeg"}"#.to_owned(), "`audit` twice"),
        (r#"{"principal":"b","roles":["audit"],"token":"short"}"#.to_owned(), "5 characters"),
        (r#"{"principal":"b","roles":["audit"],"token":"0123456789 abcdef"}"#.to_owned(), "cannot travel"),
        (r#"{"principal":"b","roles":["audit"]}"#.to_owned(), "neither `token` nor"),
        (
            format!(r#"{{"principal":"b","roles":["audit"],"token":"0123456789abcdeg","token_blake3":"{digest}"}}"#),
            "both",
        ),
        (r#"{"principal":"b","roles":["audit"],"token_blake3":"AB"}"#.to_owned(), "64 lowercase hex"),
        (r#"{"principal":"b","role":["audit"],"token":"0123456789abcdeg"}"#.to_owned(), "unknown field `role`"),
        (r#"{"principal":"","roles":["audit"],"token":"0123456789abcdeg"}"#.to_owned(), "principal that is empty"),
        (r#"{"principal":"placet:system","roles":["audit"],"token":"0123456789abcdeg"}"#.to_owned(), "reserved"),
    ] {
        let error = Keyring::parse(&format!("[{first},{second}]")).unwrap_err().to_string();
        assert!(error.starts_with("entry 2") && error.contains(says), "{second}: {error}");
        assert!(!error.contains("0123456789"), "a token in a message: {error}");
    }
    for text in ["", "{}", "[]", "[1]", "null"] {
        assert!(Keyring::parse(text).is_err(), "{text}");
    }
    assert!(!format!("{:?}", Keyring::parse(&format!("[{first}]")).unwrap()).contains("0123456789"));
}
