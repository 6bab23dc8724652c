"""LeRobot data sets, written and read without LeRobot.

layout    info.json: features, names of files, versions
table     parquet <-> numpy, checked
film      mp4: written, joined without a second encoding, read frame by frame
summary   statistics of features, per episode and over all
index     a folder of version 2.1 or 3.0 -> its episodes and where their rows and frames lie
check     whether tables and films hold what the index says
assembly  episodes -> a folder of version 3.0
collect, bring, demos   the commands: record, import, clone from
"""
