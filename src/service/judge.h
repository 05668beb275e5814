/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Judgements on a server: admission, counters, signature. */

#include "judge/decode.h"
#include "judge/encode.h"
#include "service/service.h"

struct service_judgement {
    struct json_judge judge;
    size_t bytes; /* memory that the decoded request takes */
    char request_hash[JUDGE_HASH_HEX];
};

/* Both functions take the content of the judgement, also on failure. */

/* Judges on this thread. Returns 0 and an answer, whose first user the caller becomes, or an
 * error. With ERR_BUSY, err->retry_s says when to try again. */
int service_judge(struct state *state, struct service_judgement *judgement, int owner,
    struct history_run *record, struct answer **ret_answer, enum run_status *ret_status,
    struct err *err);

/* Judges on a thread of its own and reports to `record`. Fails at once when the request is
 * invalid or the queue is full. Takes the reference to record on success. */
int service_judge_later(struct state *state, struct service_judgement *judgement, int owner,
    struct history_run *record, struct err *err);

/* Makes the answer of a judgement that Hermes could not carry out. The caller becomes its first
 * user. */
struct answer *service_judge_failure(const char *id, const struct err *err);
