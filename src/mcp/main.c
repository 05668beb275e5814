/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-mcp: `hermes mcp` without a server. It serves one client on stdin and stdout and has
 * an engine of its own. The engine is opened by the first call that needs it, so a client that
 * only lists tools gets its answer within milliseconds. Two of these programs share nothing.
 *
 * Usage: hermes-mcp [--full] */

#include "base/log.h"
#include "base/os/thread.h"
#include "base/str.h"
#include "mcp/ready.h"
#include "mcp/stdio.h"
#include "service/service.h"
#include "session/session.h"

#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TICK_MS = 500, NETWORKS_READY = 2, EXIT_HERMES = 125 };

static struct state state;
static atomic_bool is_open;

static int load_settings(struct err *err)
{
    struct strv problems = {0};
    if (config_load_text(&state.config, "", 0, &problems) < 0)
        return err_set(
            err, ERR_INTERNAL, 0, "settings: %s", problems.count ? problems.items[0] : "wrong");
    state.config.history = HISTORY_MEMORY; /* nothing outlives this process */
    state.config.warm = false;
    return 0;
}

/* Called by the core, with the first call that needs it. */
static int open_engine(struct state *s, struct err *err)
{
    const struct lang_dirs dirs = {.runtimes = getenv("HERMES_RUNTIMES"),
        .more = getenv("RUNTIME_DIR"),
        .state = getenv("HERMES_STATE_DIR"),
        .seeds = getenv("HERMES_SEED_DIR"),
        .home = getenv("HOME")};
    struct engine_options options = {.runtimes = &s->runtimes,
        .dirs = dirs,
        .spawner_path = getenv("HERMES_SPAWN"),
        .min_level = LEVEL_STRONG,
        .networks = NETWORKS_READY,
        .sessions = true,
        .maxima = s->config.maxima};
    int r = s->runtimes.count ? 0 : runtime_load(&s->runtimes, &dirs, NULL, err);
    if (r == 0)
        r = engine_open(&s->engine, &options, err);
    if (r == 0)
        r = service_open(s, err);
    is_open = r == 0;
    return r;
}

static void *tick(void *arg)
{
    for (;;) {
        (void)poll(NULL, 0, TICK_MS);
        if (is_open)
            service_tick(&state);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    bool is_full = argc == 2 && str_eq(argv[1], "--full");
    const char *path = is_full ? "/mcp/full" : "/mcp";
    (void)signal(SIGPIPE, SIG_IGN);
    (void)umask(077);
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    int r = load_settings(&err);
    (void)log_set_level("warn");
    if (r == 0)
        r = thread_start(NULL, tick, NULL);
    if (r < 0) {
        (void)fprintf(stderr, "hermes mcp: %s\n", err.code ? err.message : strerror(-r));
        return EXIT_HERMES;
    }
    state.mcp = mcp_new(&state);
    mcp_on_engine(state.mcp, open_engine);
    int status = mcp_stdio_serve(state.mcp, mcp_surface_at(path, strlen(path)));
    if (is_open) {
        is_open = false;
        state.stopping = true;
        ready_stop(state.mcp);
        sessions_stop(state.sessions);
        service_close(&state);
    }
    return status;
}
