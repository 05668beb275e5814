/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A judge_result as the JSON of docs/judging.md, and its signature. */

#include "judge/judge.h"
#include "run/encode.h"

/* The caller owns what is returned. */
json_t *judge_json(const struct judge_spec *spec, const struct judge_result *result,
    enum result_encoding encoding);
json_t *judge_json_test(const struct judge_spec *spec, size_t index,
    const struct judge_test_result *test, enum result_encoding encoding);

enum { JUDGE_HASH_HEX = 64 + 1 };

/* SHA-256 of a request body, in hex. */
void judge_hash(const void *data, size_t len, char ret[JUDGE_HASH_HEX]);

/* Adds the member `signature`: HMAC-SHA256 over the answer with every member but the value of
 * the signature itself, written with sorted keys and no space. */
void judge_json_sign(json_t *answer, const char *request_hash, const char *key);

/* 0 when the signature fits; -ENOENT when there is none, -EBADMSG when it does not fit. */
int judge_json_verify(const json_t *answer, const char *key);
