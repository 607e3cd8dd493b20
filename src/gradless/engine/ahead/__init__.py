"""Steps made before it is known whether those before them are accepted: the same chain, sooner.

speculate: a round of proposals inside the compiled loop; pace: how many of them pay.
`gradless.asktell.foresee` does the same where the loss is evaluated outside of it.
"""
