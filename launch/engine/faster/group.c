/* One step of a group of games: what `step` of motif_jax/envs/nethack/game.py does where a step shows no page or question
   and ends neither level nor episode. One copy of the library steps the games of all copies. */
#define _GNU_SOURCE /* for memmem */
#include <string.h>

enum { SCORE = 9, LEVEL = 18, TURNS = 20, BRANCH = 23, STAIRS_LEVEL = 24 }; /* of blstats */
enum { IN_QUESTION = 1, IN_LINE = 2, AT_PAGE = 3, ON_STAIRS_DOWN = 4 };     /* of internal */
enum { WORTH_SAVING = 5 };                                                  /* of program_state */
enum { NOTHING, MESSAGE, ACCOUNT, ALL };                                    /* what is left to the caller */

typedef struct { /* `Account` of loop.py */
  void *(*step)(void *, int *); /* NLE's nle_step; an observation begins with the key */
  void *context;
  int *observation;
  const long *blstats;
  const void *glyphs;
  const char *message;
  const int *internal, *program_state;
  long *last_blstats;
  void *last_glyphs;
  long stairs_message, max_steps, patience;
  long asked, steps, frozen, score, turns, level, branch, stairs_level, without_message;
  double penalty, episode_return;
} Game;

#define EAT_PROMPT "What do you want to eat"

static int answers_a_question(const Game *game) {
  return *game->message && memmem(game->message, 256, EAT_PROMPT, sizeof(EAT_PROMPT) - 1);
}

/* Where a key was pressed: what is left of the step. */
static int account(Game *game, float *reward, int *count) {
  const long *blstats = game->blstats;
  const int *internal = game->internal;
  if (internal[IN_QUESTION] || internal[IN_LINE] || internal[AT_PAGE] || !game->program_state[WORTH_SAVING]) return ACCOUNT;
  if (blstats[BRANCH] != game->branch || blstats[STAIRS_LEVEL] != game->stairs_level || blstats[LEVEL] > game->level)
    return ACCOUNT;
  if (game->stairs_message && internal[ON_STAIRS_DOWN]) return ACCOUNT;
  long frozen = blstats[TURNS] == game->turns ? game->frozen + 1 : 0;
  if (game->steps + 1 >= game->max_steps || frozen >= game->patience) return ACCOUNT;
  double paid = (double)(blstats[SCORE] - game->score);
  if (frozen) paid += game->penalty;
  game->steps++;
  game->frozen = frozen;
  game->turns = blstats[TURNS];
  game->score = blstats[SCORE];
  game->episode_return += paid;
  *reward = (float)paid;
  if (*game->message) return MESSAGE;
  *count = ++game->without_message;
  return NOTHING;
}

void play_group(long number, long num_keys, Game *games, const int *keys, const long *actions, long *stepping,
                float *rewards, int *counts, char *left) {
  for (long index = 0; index < number; index++) {
    Game *game = &games[index];
    if (actions[index] < 0 || actions[index] >= num_keys || answers_a_question(game)) {
      left[index] = ALL;
      continue;
    }
    *stepping = index + 1;
    memcpy(game->last_blstats, game->blstats, 27 * sizeof(long));
    memcpy(game->last_glyphs, game->glyphs, 21 * 79 * sizeof(short));
    game->asked = game->internal[IN_QUESTION];
    *game->observation = keys[actions[index]];
    game->step(game->context, game->observation);
    left[index] = account(game, &rewards[index], &counts[index]);
  }
}
