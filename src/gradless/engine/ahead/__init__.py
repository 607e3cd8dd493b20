"""Steps made before it is known whether those before them are accepted: the same chain, sooner.

speculate: a round of proposals inside the compiled loop; pace: how many of them pay.
foresee: the same for losses that are evaluated outside, by `gradless.asktell` and those who use it.
"""
