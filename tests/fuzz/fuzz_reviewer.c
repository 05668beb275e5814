/* SPDX-License-Identifier: Apache-2.0 */

/* The answer of a reviewer, which is a stranger's program. The first byte chooses the form of
 * the answer and settings that want to raise the ceilings; the rest is read twice: as the body
 * of the answer, and as the text that the model wrote, alone and inside a body. Whatever it
 * says, no approval is beyond the ceilings, and both ways agree. */

#include "approval/gate.h"
#include "base/utf8.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct approval_verdict *v)
{
    bool is_low = strcmp(v->risk, "low") == 0 || strcmp(v->risk, "medium") == 0;
    if (!v->reason[0] || !utf8_valid(v->reason, strlen(v->reason)) ||
        !(v->confidence >= 0 && v->confidence <= 1))
        abort();
    if (v->decision == VERDICT_APPROVE && (!is_low || v->confidence < 0.75))
        abort();
    if (v->decision == VERDICT_DENY && strcmp(v->risk, "unknown") == 0)
        abort();
}

/* The body of an answer with this text. */
static char *wrap(enum gate_api api, const char *text, size_t len)
{
    json_t *said = json_stringn_nocheck(text, len);
    json_t *body = api == GATE_CHAT ? json_pack("{s:[{s:{s:s, s:o}}]}", "choices", "message",
                                          "role", "assistant", "content", said)
                                    : json_pack("{s:[{s:s}, {s:s, s:[{s:s, s:o}]}]}", "output",
                                          "type", "reasoning", "type", "message", "content",
                                          "type", "output_text", "text", said);
    char *written = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return written;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const risks[] = {"low", "medium", "critical", "", "unheard of"};
    static const double floors[] = {0, 0.9, -1, NAN, 2};
    if (size < 1)
        return 0;
    const struct gate_settings settings = {.api = data[0] & 1 ? GATE_RESPONSES : GATE_CHAT,
        .model = "m",
        .max_risk = risks[(data[0] >> 1) % 5],
        .min_confidence = floors[(data[0] >> 4) % 5]};
    const char *text = (const char *)data + 1;
    struct approval_verdict alone;
    struct approval_verdict inside;
    gate_read(&settings, text, size - 1, &alone);
    check(&alone);
    gate_judge(&settings, text, size - 1, &alone);
    check(&alone);
    /* JSON has no way to say the other texts. */
    if (!utf8_valid(text, size - 1))
        return 0;
    char *body = wrap(settings.api, text, size - 1);
    if (!body)
        return 0;
    gate_read(&settings, body, strlen(body), &inside);
    check(&inside);
    if (inside.decision == VERDICT_APPROVE && alone.decision != VERDICT_APPROVE)
        abort();
    free(body);
    return 0;
}
