/* SPDX-License-Identifier: Apache-2.0 */

/* What a kernel says during an exec, checked as what it is: words of a stranger. Anything that
 * a kernel does not say is -EBADMSG. */

#include "session/internal.h"

#include "base/str.h"
#include "run/decode.h"
#include "service/service.h"

#include <errno.h>
#include <stdio.h>

enum { DISPLAYS_MAX = 256, DISPLAY_BYTES_MAX = 32 << 20, BUNDLE_MAX = 64 };

static void tell(const struct exec_frames *f, const char *name, const json_t *value)
{
    if (f->watch->event)
        f->watch->event(f->watch->context, name, value);
}

static bool is_bundle(const json_t *value)
{
    return json_is_object(value) && json_object_size(value) <= BUNDLE_MAX;
}

static int take_display(struct exec_frames *f, json_t *bundle, size_t bytes)
{
    struct exec_result *result = f->result;
    if (!is_bundle(bundle))
        return -EBADMSG;
    if (json_array_size(result->displays) >= DISPLAYS_MAX ||
        f->display_bytes + bytes > DISPLAY_BYTES_MAX ||
        !service_hold(f->s->all->service, bytes)) {
        result->displays_cut = true;
        return 0;
    }
    result->held += bytes;
    f->display_bytes += bytes;
    (void)json_array_append(result->displays, bundle);
    tell(f, "display", bundle);
    return 0;
}

static int take_result(struct exec_frames *f, json_t *bundle, size_t bytes)
{
    if (!is_bundle(bundle) || f->result->result || f->result->error)
        return -EBADMSG;
    if (!service_hold(f->s->all->service, bytes)) {
        f->result->displays_cut = true;
        return 0;
    }
    f->result->held += bytes;
    f->result->result = json_incref(bundle);
    tell(f, "result", bundle);
    return 0;
}

static int take_error(struct exec_frames *f, json_t *error)
{
    const char *name;
    const char *value;
    json_t *traceback;
    if (f->result->result || f->result->error ||
        json_unpack(error, "{s:s, s:s, s:o !}", "name", &name, "value", &value, "traceback",
            &traceback) < 0 ||
        !json_is_array(traceback))
        return -EBADMSG;
    for (size_t i = 0; i < json_array_size(traceback); i++) {
        if (!json_is_string(json_array_get(traceback, i)))
            return -EBADMSG;
    }
    f->result->error = json_incref(error);
    tell(f, "error", error);
    return 0;
}

static int take_tool_call(struct exec_frames *f, json_t *call, size_t bytes)
{
    struct session *s = f->s;
    bool is_asked;
    (void)pthread_mutex_lock(&s->lock);
    int r = tools_call(s, call, bytes, &is_asked);
    (void)pthread_mutex_unlock(&s->lock);
    if (r == 0 && is_asked)
        tell(f, "tool_call", call);
    return r;
}

static int take_done(struct exec_frames *f, json_t *done)
{
    struct exec_result *result = f->result;
    int ok;
    int interrupted;
    json_t *exit_code;
    json_t *cwd;
    json_int_t count;
    const char *state;
    if (json_unpack(done, "{s:b, s:o, s:o, s:I, s:b, s:s !}", "ok", &ok, "exit_code",
            &exit_code, "cwd", &cwd, "execution_count", &count, "interrupted", &interrupted,
            "state", &state) < 0 ||
        !json_is_string(cwd) || (!json_is_null(exit_code) && !json_is_integer(exit_code)))
        return -EBADMSG;
    session_set_cwd(f->s, done);
    result->status = ok ? RUN_OK : RUN_RUNTIME_ERROR;
    result->exited = json_is_integer(exit_code);
    result->exit_code = (int)json_integer_value(exit_code);
    result->execution_count = count;
    result->state_lost = str_eq(state, "lost");
    if (!str_eq(state, "kept"))
        (void)snprintf(result->message, sizeof(result->message), "%s",
            result->state_lost
                ? "the shell had to be replaced by a fresh one"
                : "the shell had to be replaced; it goes on with the state from before");
    f->is_done = true;
    return 0;
}

int frames_take(struct exec_frames *f, const struct channel_frame *frame)
{
    json_t *value = NULL;
    size_t at;
    struct err ignored = {0};
    int r = json_run_parse_any(frame->data, frame->len, &value, &at, &ignored);
    if (r < 0)
        return -EBADMSG;
    switch (frame->kind) {
    case FRAME_DISPLAY:
        r = take_display(f, value, frame->len);
        break;
    case FRAME_RESULT:
        r = take_result(f, value, frame->len);
        break;
    case FRAME_ERROR:
        r = take_error(f, value);
        break;
    case FRAME_TOOL_CALL:
        r = take_tool_call(f, value, frame->len);
        break;
    case FRAME_DONE:
        r = take_done(f, value);
        break;
    default:
        r = -EBADMSG;
    }
    json_decref(value);
    return r;
}
