/* SPDX-License-Identifier: Apache-2.0 */

/* Questions to the interpreter of a session while no exec runs. */

#include "session/internal.h"

#include "run/decode.h"

#include <errno.h>
#include <string.h>

enum {
    ANSWER_MS = 5000
}; /* an interpreter answers within a millisecond; a busy host needs time */

int session_ask(struct session *s, const char *question, const char *text,
    enum channel_kind answer, bool (*is_valid)(const json_t *), json_t **ret)
{
    struct channel_frame frame;
    struct err ignored = {0};
    size_t at;
    int r = channel_queue(&s->channel, question, text, text ? strlen(text) : 0);
    if (r < 0 || (r = channel_await(&s->channel, ANSWER_MS, &frame)) < 0)
        return r;
    if (frame.kind != answer ||
        json_run_parse_any(frame.data, frame.len, ret, &at, &ignored) < 0)
        return -EBADMSG;
    if (is_valid(*ret))
        return 0;
    json_decref(*ret);
    *ret = NULL;
    return -EBADMSG;
}

int session_asked(struct session *s, int asked, struct err *err)
{
    if (asked < 0) {
        session_stop_interpreter(s);
        session_lose(s, "protocol", "the interpreter sent an invalid answer");
        asked = err_set(err, ERR_CONFLICT, ESTALE,
            "the interpreter sent an invalid answer and was ended; its state is lost");
    }
    channel_rest(&s->channel);
    session_give(s);
    return asked;
}
