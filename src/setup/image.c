/* SPDX-License-Identifier: Apache-2.0 */

/* Makes the root of an image (spawn/image.h): a copy of the mount namespace of a registered
 * root, with an overlay of the layers at IMAGE_PLACE; or an overlay of the registered root over
 * the layers, when these are a whole root. The overlay is made once and shared by
 * all boxes of the image. The kernel wants its lowers in the same namespace: the directory of
 * layers is a source there (setup/rootfs.c). They are named by descriptor, so that
 * /proc/self/mountinfo of a box does not show where they lie. */

#include "setup/setup.h"

#include "base/cleanup.h"
#include "base/os/sys.h"
#include "base/str.h"
#include "box/mount_fs.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BENEATH = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };

/* Opens the first of some directories that is there and no link. */
static int open_first(const char *const *places, unsigned count)
{
    int fd = -ENOENT;
    for (unsigned i = 0; i < count && (fd == -ENOENT || fd == -ELOOP); i++)
        fd = sys_openat2(AT_FDCWD, places[i], O_PATH | O_DIRECTORY, 0, BENEATH);
    return fd;
}

/* The tree is ROOT_TREE of the mount, or its top (proto/spawn.h). In build boxes IMAGE_PLACE is
 * a link to the new layer, and the layers of its base are at IMAGE_BASE. */
static int open_place(void)
{
    static const char *const places[] = {"r/" ROOT_TREE "/" IMAGE_PLACE, "r/" IMAGE_PLACE,
        "r/" ROOT_TREE "/" IMAGE_BASE, "r/" IMAGE_BASE};
    return open_first(places, sizeof(places) / sizeof(places[0]));
}

/* `userxattr`: overlay attributes of the files, which anybody may have set, have no effect. An
 * overlay without an upper directory needs two lowers: the last one is the empty directory. */
static int mount_layers(int place, const int *layers, unsigned count)
{
    char options[1024];
    char target[32];
    int len = snprintf(options, sizeof(options), "userxattr,lowerdir=");
    for (unsigned i = 0; i < count; i++)
        len += snprintf(
            options + len, sizeof(options) - (size_t)len, "/proc/self/fd/%d:", layers[i]);
    (void)snprintf(options + len, sizeof(options) - (size_t)len, "/new");
    (void)snprintf(target, sizeof(target), "/proc/self/fd/%d", place);
    return sys_result(
        mount("overlay", target, "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, options));
}

/* Opens and locks a finished layer. Its files belong to the server's user, so no link is
 * followed. */
static int open_layer(int all_fd, const uint8_t digest[SPAWN_DIGEST])
{
    char name[2 * SPAWN_DIGEST + 1];
    char path[sizeof(name) + sizeof("/" ROOT_TREE)];
    str_hex(digest, SPAWN_DIGEST, name);
    (void)snprintf(path, sizeof(path), "%s/" ROOT_TREE, name);
    cleanup_close int fd =
        sys_openat2(all_fd, path, O_RDONLY | O_DIRECTORY, 0, BENEATH | RESOLVE_NO_XDEV);
    if (fd < 0)
        return fd;
    return flock(fd, LOCK_SH | LOCK_NB) < 0 ? -errno : take_fd(&fd);
}

/* Opens the directory of layers of a source. */
static int open_source(unsigned number)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "m/%u", number);
    return sys_openat2(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0, BENEATH);
}

/* Opens all layers, and the part of each that boxes see. The end of this program closes the
 * latter. Packages of a session may lie over layers of the operator, which are the next source,
 * if there is one. */
static int open_layers(
    const struct setup_image_order *order, int *tops, int *ret, unsigned *count)
{
    cleanup_close int all = open_source(order->source);
    cleanup_close int others = open_source(order->source + 1);
    int r = all < 0 ? all : 0;
    for (unsigned i = 0; r == 0 && i < order->image.count; i++) {
        int fd = open_layer(all, order->image.layers[i]);
        if (fd == -ENOENT && others >= 0)
            fd = open_layer(others, order->image.layers[i]);
        if (fd < 0)
            return fd;
        ret[(*count)++] = fd;
        tops[i] = sys_openat2(fd, order->image.flags & IMAGE_WHOLE ? "." : IMAGE_PLACE,
            O_RDONLY | O_DIRECTORY, 0, BENEATH | RESOLVE_NO_XDEV);
        r = tops[i] < 0 ? tops[i] : 0;
    }
    return r;
}

static int open_dir(int dir_fd, const char *path)
{
    return sys_openat2(dir_fd, path, O_PATH | O_DIRECTORY, 0, BENEATH);
}

/* Boxes that cannot be copied have their root at ROOT_TREE of a mount. */
static int add_top(void)
{
    cleanup_close int top = mount_fs_tmpfs(65536, 16, "0755", -1, ATTR_NOSUID | ATTR_NODEV);
    if (top < 0)
        return top;
    if (mkdirat(top, ROOT_TREE, 0755) < 0)
        return -errno;
    int r = sys_mount_attrs(top, ATTR_RDONLY, 0, false);
    return r < 0 ? r : sys_mount_attach(top, AT_FDCWD, "r");
}

static int attach(int mount_fd, int root_fd, const char *path, unsigned attrs)
{
    cleanup_close int target = open_dir(root_fd, path);
    int r = target < 0 ? target : sys_mount_attrs(mount_fd, attrs, 0, false);
    return r < 0 ? r : sys_mount_attach(mount_fd, target, "");
}

/* The registered root is a skeleton in memory, and the highest layer: its directories and files
 * win over those of the layers. Devices of layers have no effect; /dev is our own.
 * /usr/lib/hermes is mounted once more, so that layers cannot add to it. */
static int mount_whole(const struct setup_image_order *order, const int *tops)
{
    const char *place = order->image.flags & IMAGE_TOP ? "r" : "r/" ROOT_TREE;
    int lowers[1 + SPAWN_MAX_LAYERS];
    cleanup_close int ours = open_dir(AT_FDCWD, "r");
    if (ours < 0)
        return ours;
    cleanup_close int devices = sys_tree_clone(ours, "dev");
    cleanup_close int files = sys_tree_clone(ours, "usr/lib/hermes");
    if (devices < 0 || files < 0)
        return devices < 0 ? devices : files;
    int r = order->image.flags & IMAGE_TOP ? 0 : add_top();
    cleanup_close int target = r < 0 ? r : open_dir(AT_FDCWD, place);
    lowers[0] = ours;
    for (unsigned i = 0; i < order->image.count; i++)
        lowers[1 + i] = tops[i];
    r = target < 0 ? target : mount_layers(target, lowers, 1 + order->image.count);
    cleanup_close int root = r < 0 ? r : open_dir(AT_FDCWD, place);
    r = root < 0 ? root : attach(devices, root, "dev", ATTR_RDONLY | ATTR_NOSUID | ATTR_NOEXEC);
    return r < 0
               ? r
               : attach(files, root, "usr/lib/hermes", ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV);
}

int setup_image(
    const struct setup_image_order *order, int ns_fd, int *ret_fds, unsigned *ret_count)
{
    int tops[SPAWN_MAX_LAYERS];
    if (order->protocol != SPAWN_PROTOCOL || order->image.count < 1 ||
        order->image.count > SPAWN_MAX_LAYERS)
        return -EINVAL;
    if (setns(ns_fd, CLONE_NEWNS) < 0 || unshare(CLONE_NEWNS) < 0)
        return -errno;
    (void)umount2("host", MNT_DETACH); /* gone already, unless the spawner was busy */
    ret_fds[0] = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (ret_fds[0] < 0)
        return -errno;
    *ret_count = 1;
    if (order->image.flags & IMAGE_WHOLE) {
        int r = open_layers(order, tops, ret_fds, ret_count);
        return r < 0 ? r : mount_whole(order, tops);
    }
    cleanup_close int place = open_place();
    int r = place < 0 ? place : open_layers(order, tops, ret_fds, ret_count);
    return r < 0 ? r : mount_layers(place, tops, order->image.count);
}

/* The overlay of the image's root is cloned, so the box shares it with others. After the second
 * setns() every name is one of the box: IMAGE_PLACE is a directory of its read-only root, or of
 * the tree in it, and no link is followed. */
int setup_join(int ns_fd, int pidfd)
{
    static const char *const targets[] = {ROOT_TREE "/" IMAGE_PLACE, IMAGE_PLACE};
    if (setns(ns_fd, CLONE_NEWNS) < 0)
        return -errno;
    cleanup_close int place = open_place();
    if (place < 0)
        return place;
    cleanup_close int layers = sys_mount_clone(place, ".");
    if (layers < 0)
        return layers;
    int r = sys_mount_attrs(layers, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, 0, false);
    if (r == 0 && setns(pidfd, CLONE_NEWNS) < 0)
        r = -errno;
    if (r < 0)
        return r;
    cleanup_close int target = open_first(targets, sizeof(targets) / sizeof(targets[0]));
    return target < 0 ? target : sys_mount_attach(layers, target, "");
}
