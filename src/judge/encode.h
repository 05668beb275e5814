/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Encodes a judge_result as the JSON of docs/judging.md, and signs it. */

#include "judge/judge.h"
#include "run/encode.h"

/* The caller owns the returned values. */
json_t *judge_json(const struct judge_spec *spec, const struct judge_result *result,
    enum result_encoding encoding);
json_t *judge_json_test(const struct judge_spec *spec, size_t index,
    const struct judge_test_result *test, enum result_encoding encoding);

enum { JUDGE_HASH_HEX = 64 + 1 };

/* SHA-256 of a request body, in hex. */
void judge_hash(const void *data, size_t len, char ret[JUDGE_HASH_HEX]);

/* Adds the member `signature`: HMAC-SHA256 over the whole answer except the value of the
 * signature, written with sorted keys and no spaces. */
void judge_json_sign(json_t *answer, const char *request_hash, const char *key);

/* Returns 0 when the signature is valid, -ENOENT when there is none, -EBADMSG when it is not
 * valid. */
int judge_json_verify(const json_t *answer, const char *key);
