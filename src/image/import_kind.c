/* SPDX-License-Identifier: Apache-2.0 */

/* Decides what an imported image is: packages for a language of this host (everything below
 * /opt, as Hermes exports them), or a whole root. */

#include "image/import.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Paths that show of which language the packages in a layer are. */
static const struct {
    const char *language, *place;
} places[] = {{"python", "opt/venv"}, {"javascript", "opt/node_modules"}, {"go", "opt/go"},
    {"rust", "opt/cargo"}};
enum { PLACE_COUNT = sizeof(places) / sizeof(places[0]) };

static bool has(int layer_fd, const char *path)
{
    cleanup_close int fd = fs_open_beneath(layer_fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    return fd >= 0;
}

static bool is_dir(int layer_fd, const char *path)
{
    cleanup_close int fd =
        fs_open_beneath(layer_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return fd >= 0;
}

/* Layers with packages. Their label may name the language and the version. */
static int find_packages(const struct image_import *from, const json_t *told,
    const int *layer_fds, size_t count, struct image_kind *to, struct err *err)
{
    const char *language = json_string_value(json_object_get(told, "language"));
    const char *version = json_string_value(json_object_get(told, "version"));
    to->runtime = from->runtime ? from->runtime
                  : language    ? runtime_find(from->runtimes, language)
                                : NULL;
    for (size_t i = 0; !to->runtime && i < PLACE_COUNT; i++) {
        for (size_t k = 0; k < count; k++) {
            if (is_dir(layer_fds[k], places[i].place))
                to->runtime = runtime_find(from->runtimes, places[i].language);
        }
    }
    if (!to->runtime || !to->runtime->run.has_images)
        return err_field(
            err, "language", "the archive does not say which language it is for; name it");
    if (!version || !image_version_read(version, strlen(version), to->version))
        (void)snprintf(to->version, sizeof(to->version), "%s",
            to->runtime->version ? to->runtime->version : "");
    return 0;
}

int image_kind_find(const struct image_builder *builder, const struct image_import *from,
    const json_t *told, const int *layer_fds, const json_t *digests, struct image_kind *ret,
    struct err *err)
{
    size_t count = json_array_size(digests);
    bool all_opt = true;
    *ret = (struct image_kind){0};
    for (size_t i = 0; i < count; i++) {
        ret->is_whole = ret->is_whole || has(layer_fds[i], "usr") || has(layer_fds[i], "bin");
        all_opt = all_opt && is_dir(layer_fds[i], IMAGE_PLACE);
    }
    if (ret->is_whole)
        return image_whole_find(builder, from->runtimes, from->runtime, digests, ret, err);
    if (!all_opt)
        return err_set(err, ERR_INVALID, EINVAL,
            "the archive is neither a root file system, with /usr or /bin, nor an image that "
            "Hermes exported, with /opt");
    return find_packages(from, told, layer_fds, count, ret, err);
}
