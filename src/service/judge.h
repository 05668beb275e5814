/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Judgements on a server: admission, counters, signature. */

#include "judge/decode.h"
#include "judge/encode.h"
#include "service/service.h"

struct service_judgement {
    struct json_judge judge;
    size_t bytes; /* what was read of the request takes so much memory */
    char request_hash[JUDGE_HASH_HEX];
};

/* Judges on this thread. Returns 0 with the answer, of which the caller is a user, or an error;
 * with ERR_BUSY *ret_retry_s says when to come again. */
int service_judge(struct state *state, struct service_judgement *judgement, int owner,
    struct history_run *record, struct answer **ret_answer, enum run_status *ret_status,
    unsigned *ret_retry_s, struct err *err);

/* The same on a thread of its own, told to `record`. Fails at once when the request is bad or
 * there is no place in the queue. On success takes the judgement's content and the reference to
 * record. */
int service_judge_later(struct state *state, struct service_judgement *judgement, int owner,
    struct history_run *record, unsigned *ret_retry_s, struct err *err);

/* The answer when Hermes failed as a whole; the caller is its user. */
struct answer *service_judge_failure(const char *id, const struct err *err);
