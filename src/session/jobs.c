/* SPDX-License-Identifier: Apache-2.0 */

/* Background jobs of a shell session: asks its interpreter while no exec is running. */

#include "session/internal.h"

#include "base/str.h"
#include "run/decode.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* JOBS_MAX bounds the list that a hostile interpreter can make the server keep. */
enum { ANSWER_MS = 5000, JOBS_MAX = 1024 };

static bool is_job(json_t *job)
{
    json_int_t id;
    json_int_t processes;
    const char *command;
    const char *state;
    return json_unpack(job, "{s:I, s:s, s:s, s:I !}", "id", &id, "command", &command, "state",
               &state, "processes", &processes) == 0;
}

static bool are_jobs(const json_t *list)
{
    bool ok = json_is_array(list) && json_array_size(list) <= JOBS_MAX;
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = is_job(json_array_get(list, i));
    return ok;
}

/* Sends a question. Its answer must be the list of jobs. */
static int ask(struct session *s, const char *question, const char *id, json_t **ret)
{
    struct channel_frame frame;
    struct err ignored = {0};
    size_t at;
    int r = channel_queue(&s->channel, question, id, id ? strlen(id) : 0);
    if (r < 0 || (r = channel_await(&s->channel, ANSWER_MS, &frame)) < 0)
        return r;
    if (frame.kind != FRAME_JOBS ||
        json_run_parse_any(frame.data, frame.len, ret, &at, &ignored) < 0)
        return -EBADMSG;
    if (are_jobs(*ret))
        return 0;
    json_decref(*ret);
    *ret = NULL;
    return -EBADMSG;
}

static bool has_job(const json_t *jobs, const char *id)
{
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        char number[24];
        (void)snprintf(number, sizeof(number), "%lld",
            (long long)json_integer_value(json_object_get(json_array_get(jobs, i), "id")));
        if (str_eq(number, id))
            return true;
    }
    return false;
}

int session_jobs(struct session *s, const char *kill_id, json_t **ret, struct err *err)
{
    json_t *jobs = NULL;
    int r = session_take(s, false, false, -1, err);
    if (r < 0)
        return r;
    int asked = ask(s, "jobs", NULL, &jobs);
    if (asked == 0 && kill_id && !has_job(jobs, kill_id)) {
        r = err_set(err, ERR_NOT_FOUND, ENOENT, "there is no such job, or no longer");
    } else if (asked == 0 && kill_id) {
        json_decref(jobs);
        jobs = NULL;
        asked = ask(s, "kill_job", kill_id, &jobs);
    }
    if (asked < 0) {
        session_stop_kernel(s);
        session_lose(s, "protocol", "the interpreter did not answer as it should");
        r = err_set(err, ERR_CONFLICT, ESTALE,
            "the interpreter did not answer as it should and was ended; its state is lost");
    }
    channel_rest(&s->channel);
    session_give(s);
    if (r < 0)
        json_decref(jobs);
    else
        *ret = jobs;
    return r;
}
