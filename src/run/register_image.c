/* SPDX-License-Identifier: Apache-2.0 */

/* Registers the operator's own images: a root of the table for runs and one for sessions, and a
 * zygote for each that has imported the image's modules. Only code that the operator has named
 * runs in a zygote: after the seal none can be added (spawn/image.h). */

#include "run/engine_state.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "run/image_root.h"

#include <errno.h>
#include <string.h>

/* A thread of a library would make copies of the zygote unsafe. Libraries read these when they
 * are loaded; boxes have the values of their own. */
static const char *const one_thread[] = {"OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1",
    "MKL_NUM_THREADS=1", "NUMEXPR_NUM_THREADS=1", "NUMBA_NUM_THREADS=1",
    "JE_ARROW_MALLOC_CONF=background_thread:false"};

void engine_zygote_words(const struct engine_image *image, struct strv *argv, struct strv *env)
{
    (void)plan_image(&image->runtime->run, image->image, 0, argv, env);
    for (size_t i = 0; i < sizeof(one_thread) / sizeof(one_thread[0]); i++)
        plan_set_env(env, one_thread[i]);
    strv_add_all(argv, &image->preload);
}

/* Adds the root of an image over a registered one; returns its number. The spawner counts roots
 * as we do. */
static int add_root(struct engine *e, const struct engine_image *image, int base)
{
    struct err err = {0};
    int socket = -1;
    uint32_t number = 0;
    struct spawn_image key;
    if (e->registered_count == SPAWN_MAX_ROOTS)
        return -E2BIG;
    image_root_key(&key, (unsigned)base, image->image);
    int r = spawner_image(&e->spawner, &key, &socket, &number, &err);
    close_fd(&socket);
    if (r < 0)
        return r;
    if (number != e->registered_count)
        return -EPROTO;
    root_entries_init(&e->registered[e->registered_count++]);
    return (int)number;
}

/* An image that cannot be mounted is not there; the server starts without it. */
int engine_register_image(struct engine *e, const struct engine_options *options,
    const struct engine_image *image, struct err *err)
{
    static const int kinds[] = {ROOT_RUN, ROOT_SESSION};
    size_t index = (size_t)(image->runtime - e->runtimes->items);
    int r = 0;
    for (size_t i = 0; r >= 0 && i < 2; i++) {
        bool is_session = kinds[i] == ROOT_SESSION;
        int base = e->roots[index][kinds[i]];
        if (base < 0 || (is_session && base == e->roots[index][ROOT_RUN]))
            continue;
        r = add_root(e, image, base);
        if (r < 0)
            break;
        int number = r;
        bool is_warm = options->zygotes && image->preload.count;
        if (is_warm)
            r = engine_register_zygote(e, index, options, is_session, image, number, err);
        if (r < 0)
            return r;
        image_roots_fix(e->images, (unsigned)base, image->image, (unsigned)number, is_warm);
    }
    if (r < 0)
        log_event(LOG_WARN, "an image of the operator cannot be used", "image",
            image->image->id, "reason", strerror(-r), (char *)NULL);
    return 0;
}
