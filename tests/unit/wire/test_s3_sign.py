"""The published examples of AWS's page on Signature Version 4 for S3, and botocore's own signer."""

import time

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.s3_sign import EMPTY_SHA256, Keys, quote_path, quote_query, sign

EXAMPLE = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
HOST = "examplebucket.s3.amazonaws.com"
AT = time.strptime("20130524T000000Z", "%Y%m%dT%H%M%SZ")
PUT_SHA256 = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "payload", "signature"),
    [
        (
            "GET", "/test.txt", [], {"Range": "bytes=0-9"}, EMPTY_SHA256,
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT", "/test$file.text", [],
            {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"}, PUT_SHA256,
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            "GET", "/", [("lifecycle", "")], {}, EMPTY_SHA256,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "GET", "/", [("max-keys", "2"), ("prefix", "J")], {}, EMPTY_SHA256,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)  # fmt: skip
def test_gives_the_published_signatures(method, path, query, headers, payload, signature):
    signed = sign(EXAMPLE, method, HOST, path, query, headers, payload, at=AT)
    assert signed["authorization"].endswith(f"Signature={signature}")


@given(
    key=st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20).filter(
        lambda text: text not in (".", "..")
    ),
    prefix=st.text(max_size=10),
    etag=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20),
)
def test_agrees_with_botocore(key, prefix, etag):
    keys = Keys("AKID", "secret/+key", "token==")
    headers = {"If-Match": etag}
    query = [("list-type", "2"), ("prefix", prefix)]
    ours = sign(keys, "PUT", "127.0.0.1:8333", f"/bucket/{key}", query, headers)
    url = f"http://127.0.0.1:8333{quote_path(f'/bucket/{key}')}?{quote_query(query)}"
    request = AWSRequest("PUT", url, headers, b"")
    request.context["timestamp"] = ours["x-amz-date"]
    signer = S3SigV4Auth(Credentials(keys.access_key, keys.secret_key, keys.session_token), "s3", "us-east-1")
    request.headers["X-Amz-Content-SHA256"] = EMPTY_SHA256
    request.headers["X-Amz-Date"] = ours["x-amz-date"]
    request.headers["X-Amz-Security-Token"] = keys.session_token
    theirs = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    assert ours["authorization"].endswith(f"Signature={theirs}")
