/* SPDX-License-Identifier: Apache-2.0 */

/* See session_stream.h. */

#include "session/stream.h"

#include "base/alloc.h"
#include "service/service.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREAD_STACK = 512 << 10 };

struct later {
    struct service *service;
    struct session *session;
    struct exec_spec spec;
    struct history_run *record;
};

static void on_output(void *context, enum run_stream stream, const char *data, size_t len)
{
    history_output(context, stream, data, len);
}

static void on_event(void *context, const char *name, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | RESULT_JSON_FLAGS);
    if (text)
        history_event(context, name, text);
    free(text);
}

static void *run(void *arg)
{
    struct later *later = arg;
    struct service *service = later->service;
    const struct exec_watch watch = {.context = later->record,
        .output = on_output,
        .event = on_event,
        .cancel_fd = history_cancel_fd(later->record)};
    struct exec_result result;
    struct err err = {0};
    history_started(later->record);
    int r = session_exec(later->session, &later->spec, &watch, &result, &err);
    json_t *json = exec_result_json(&result);
    if (r < 0)
        (void)json_object_set_new(json, "error",
            json_pack("{s:s, s:s, s:[]}", "name", err_table[err.code].name, "value",
                err.message, "traceback"));
    char *answer = json_dumps(json, JSON_COMPACT | RESULT_JSON_FLAGS);
    json_decref(json);
    if (!answer)
        answer = xstrdup("{}");
    history_finish(later->record, result.status, answer, strlen(answer));
    exec_result_done(&result);
    history_unref(later->record);
    session_unref(later->session);
    exec_spec_done(&later->spec);
    free(later);
    service->background--;
    return NULL;
}

int session_exec_later(struct service *service, struct session *s, struct exec_spec *spec,
    struct history_run *record, struct err *err)
{
    struct later *later = xmalloc(sizeof(*later));
    pthread_attr_t attr;
    pthread_t thread;
    *later = (struct later){.service = service, .session = s, .spec = *spec, .record = record};
    service->background++;
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK);
    int r = -pthread_create(&thread, &attr, run, later);
    (void)pthread_attr_destroy(&attr);
    if (r < 0) {
        service->background--;
        free(later);
        return err_set(err, ERR_UNAVAILABLE, -r, "no thread is left for this exec");
    }
    *spec = (struct exec_spec){0};
    return 0;
}
